/** Carries out `parscale help`. */
import {
  type Command,
  type CommandEntry,
  flagsOf,
  loadAll,
  type ValuesOf,
} from "../../framework/command.ts";
import { commonHelp, fullHelp, programHelp } from "../../framework/help.ts";
import { manPage } from "../../framework/man.ts";
import { environmentName } from "../../framework/table.ts";
import { PLAIN } from "../../output/color.ts";
import type { Invocation } from "../../output/document.ts";
import { EXIT_CODES } from "../../output/exit_codes.ts";
import type { Io } from "../../output/io.ts";
import { reportRows } from "../../output/report.ts";
import { writeText } from "../../output/sink.ts";
import type { Row } from "../../output/table.ts";
import type { command } from "./flags.ts";

const FORMAT_ROWS: readonly Row[] = [
  { format: "table", meaning: "for reading; wrapped on a terminal, plain text in a pipe" },
  { format: "json", meaning: "one document with schema, config, seed, device and results" },
  { format: "jsonl", meaning: "one object per line, each written as soon as it is known" },
  { format: "csv", meaning: "header and records, numbers unrounded" },
  { format: "md", meaning: "a Markdown table" },
];

/** Variables that are no flag's. */
const VARIABLES: readonly Row[] = [
  { variable: "PARSCALE_CACHE", meaning: "folder for cached files, instead of the XDG one" },
  { variable: "PARSCALE_TRACE", meaning: "1 adds the trace to an error" },
  { variable: "NO_COLOR", meaning: "non-empty turns colour off" },
  { variable: "FORCE_COLOR", meaning: "non-empty and not 0 turns colour on without a terminal" },
  { variable: "TERM", meaning: "dumb turns colour off" },
  { variable: "CI", meaning: "non-empty turns the redrawn progress line off" },
  { variable: "XDG_CONFIG_HOME", meaning: "folder of settings, with parscale/config.json in it" },
  { variable: "XDG_CACHE_HOME", meaning: "folder of caches, ours and those of the hub" },
  { variable: "XDG_STATE_HOME", meaning: "folder of the messages that chat keeps" },
  { variable: "HF_HOME", meaning: "folder whose hub/ holds downloads, shared with other programs" },
  { variable: "HF_HUB_CACHE", meaning: "that folder itself" },
  { variable: "PARSCALE_API_KEY", meaning: "key that `serve` asks its clients for" },
  { variable: "HF_TOKEN", meaning: "token for gated and private repositories of the hub" },
  { variable: "HF_TOKEN_PATH", meaning: "file with the token" },
  { variable: "HF_ENDPOINT", meaning: "address of another hub" },
  { variable: "HF_HUB_OFFLINE", meaning: "1 uses earlier downloads only" },
  { variable: "PARSCALE_LIBCUDA", meaning: "file of the NVIDIA driver, where it is not found" },
  { variable: "PARSCALE_NVRTC", meaning: "file of NVIDIA's compiler, where it is not found" },
  { variable: "PARSCALE_CUBLASLT", meaning: "file of NVIDIA's products, where it is not found" },
  { variable: "PARSCALE_NCCL", meaning: "file of NVIDIA's communication, where it is not found" },
  {
    variable: "PARSCALE_MPI",
    meaning: "file of the MPI library, where it is another's or not found",
  },
  {
    variable: "PARSCALE_DIST_PORT",
    meaning: "port of rank 0, instead of the one after MASTER_PORT",
  },
  { variable: "MASTER_ADDR", meaning: "machine of rank 0; set by torchrun, with MASTER_PORT" },
  { variable: "MASTER_PORT", meaning: "port of the launcher on it" },
  {
    variable: "VK_ICD_FILENAMES",
    meaning: "file of a Vulkan driver, for --device webgpu on Linux",
  },
  { variable: "CUDA_HOME", meaning: "folder of a CUDA toolkit; also CUDA_PATH" },
  { variable: "CUDA_VISIBLE_DEVICES", meaning: "the GPUs that may be used, and their order" },
];

function environmentRows(loaded: readonly Command[]): Row[] {
  const users = new Map<string, { flag: string; commands: string[] }>();
  for (const command of loaded) {
    for (const [flag, definition] of Object.entries(flagsOf(command))) {
      const variable = environmentName(flag, definition);
      if (variable === undefined) continue;
      const commands = users.get(variable)?.commands ?? [];
      users.set(variable, { flag, commands: [...commands, command.name] });
    }
  }
  const flagRows = [...users].map(([variable, { flag, commands }]) => {
    const where = commands.length === loaded.length ? "" : ` of ${commands.join(", ")}`;
    return { variable, meaning: `--${flag}${where}` };
  });
  return [...VARIABLES, ...flagRows];
}

function presetRows(loaded: readonly Command[]): Row[] {
  return loaded.flatMap((command) =>
    Object.entries(command.presets ?? {}).map(([preset, { summary, values }]) => ({
      command: command.name,
      preset,
      meaning: summary,
      values: Object.entries(values).map(([name, value]) => `--${name} ${value}`).join(" "),
    }))
  );
}

const TOPICS: Readonly<Record<string, (loaded: readonly Command[]) => readonly Row[]>> = {
  "exit-codes": () => EXIT_CODES.map(({ code, meaning }) => ({ code, meaning })),
  formats: () => FORMAT_ROWS,
  environment: environmentRows,
  presets: presetRows,
};

function manualPage(loaded: readonly Command[]): string {
  return manPage(loaded, [
    { title: "OUTPUT FORMATS", rows: FORMAT_ROWS },
    { title: "ENVIRONMENT", rows: environmentRows(loaded) },
    { title: "EXIT STATUS", rows: EXIT_CODES.map(({ code, meaning }) => ({ code, meaning })) },
  ]);
}

/** Runs the command. */
export async function run(
  { arguments: [topic] }: ValuesOf<typeof command>,
  io: Io,
  invocation: Invocation,
  commands: readonly CommandEntry[],
): Promise<void> {
  const { out, overwrite } = invocation;
  const paint = out === undefined ? io.palette("stdout") : PLAIN;
  const options = { width: Math.min(io.width(), 100), paint };
  const write = (text: string) => writeText(io, text, out, overwrite);
  if (topic === undefined) return write(programHelp(commands, options));
  const entry = commands.find(({ name }) => name === topic);
  if (entry) return write(fullHelp(await entry.load(), options));
  if (topic === "flags") return write(commonHelp(options));
  const loaded = await loadAll(commands);
  if (topic === "man") return write(manualPage(loaded));
  await reportRows(io, invocation, { schema: "parscale.help/1" }, TOPICS[topic]!(loaded));
}
