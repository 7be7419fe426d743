/** Carries out `parscale help`. */
import { type Command, flagsOf, loadAll, type ValuesOf } from "../../framework/command.ts";
import type { Format } from "../../framework/common.ts";
import { commonHelp, fullHelp, programHelp } from "../../framework/help.ts";
import { environmentName } from "../../framework/table.ts";
import type { Context } from "../../framework/context.ts";
import { refuseFormat } from "../../input/forms.ts";
import { PLAIN } from "../../output/color.ts";
import { EXIT_CODES } from "../../output/exit_codes.ts";
import { reportRows } from "../../output/report.ts";
import { writeText } from "../../output/sink.ts";
import type { Row } from "../../output/table.ts";
import { commands } from "../mod.ts";
import type { command } from "./flags.ts";

const FORMATS: Readonly<Record<Format, string>> = {
  table: "for reading; wrapped on a terminal, plain text in a pipe",
  json: "one document with schema, config, seed, device and results",
  jsonl: "one object per line, each written as soon as it is known",
  csv: "header and records, numbers unrounded",
  md: "a Markdown table",
};

/** Variables that do not set a flag. */
const VARIABLES: Readonly<Record<string, string>> = {
  PARSCALE_CACHE: "folder for cached files, instead of the XDG one",
  PARSCALE_TRACE: "1 adds the trace to an error",
  NO_COLOR: "non-empty turns colour off",
  FORCE_COLOR: "non-empty and not 0 turns colour on without a terminal",
  TERM: "dumb turns colour off",
  CI: "non-empty turns the redrawn progress line off",
  XDG_CACHE_HOME: "folder of caches, ours and those of the hub",
  XDG_STATE_HOME: "folder of the messages that chat keeps",
  HF_HOME: "folder whose hub/ holds downloads, shared with other programs",
  HF_HUB_CACHE: "that folder itself",
  HUGGINGFACE_HUB_CACHE: "older name of HF_HUB_CACHE",
  PARSCALE_API_KEY: "key that `serve` asks its clients for",
  HF_TOKEN: "token for gated and private repositories of the hub",
  HUGGING_FACE_HUB_TOKEN: "older name of HF_TOKEN",
  HF_TOKEN_PATH: "file with the token",
  HF_ENDPOINT: "address of another hub",
  HF_HUB_OFFLINE: "1 uses earlier downloads only",
  TRANSFORMERS_OFFLINE: "the same, where HF_HUB_OFFLINE is not set",
  HF_HUB_DISABLE_IMPLICIT_TOKEN: "1 sends no token",
  PARSCALE_LIBCUDA: "file of the NVIDIA driver, where it is not found",
  PARSCALE_NVRTC: "file of NVIDIA's compiler, where it is not found",
  PARSCALE_CUBLASLT: "file of NVIDIA's products, where it is not found",
  PARSCALE_NCCL: "file of NVIDIA's communication, where it is not found",
  PARSCALE_MPI: "file of the MPI library, where it is another's or not found",
  PARSCALE_DIST_PORT: "port of rank 0, instead of the one after MASTER_PORT",
  MASTER_ADDR: "machine of rank 0; set by torchrun, with MASTER_PORT",
  MASTER_PORT: "port of the launcher on it",
  VK_ICD_FILENAMES: "file of a Vulkan driver, for --device webgpu on Linux",
  CUDA_HOME: "folder of a CUDA toolkit; also CUDA_PATH",
  CUDA_VISIBLE_DEVICES: "the GPUs that may be used, and their order",
};

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
  const others = Object.entries(VARIABLES).map(([variable, meaning]) => ({ variable, meaning }));
  return [...others, ...flagRows];
}

function presetRows(loaded: readonly Command[]): Row[] {
  return loaded.flatMap((command) =>
    Object.entries(command.presets ?? {}).map(([preset, { summary, values }]) => ({
      command: command.name,
      preset,
      meaning: summary,
      values: Object.entries(values).map(([name, value]) =>
        value === true ? `--${name}` : value === false ? `--no-${name}` : `--${name} ${value}`
      ).join(" "),
    }))
  );
}

const TOPICS: Readonly<Record<string, (loaded: readonly Command[]) => readonly Row[]>> = {
  "exit-codes": () => EXIT_CODES.map(({ code, meaning }) => ({ code, meaning })),
  formats: () => Object.entries(FORMATS).map(([format, meaning]) => ({ format, meaning })),
  environment: environmentRows,
  presets: presetRows,
};

/** Runs the command. */
export async function run(
  { arguments: [topic] }: ValuesOf<typeof command>,
  ctx: Context,
): Promise<void> {
  const { io, invocation } = ctx;
  ctx.begin();
  const { out, overwrite } = invocation;
  const paint = out === undefined ? io.palette("stdout") : PLAIN;
  const options = { width: Math.min(io.width(), 100), paint };
  const write = (text: string) => {
    refuseFormat(invocation, `\`help${topic === undefined ? "" : ` ${topic}`}\``);
    writeText(io, text, out, overwrite);
  };
  if (topic === undefined) return write(programHelp(commands, options));
  const entry = commands.find(({ name }) => name === topic);
  if (entry) return write(fullHelp(await entry.load(), options));
  if (topic === "flags") return write(commonHelp(options));
  const rows = TOPICS[topic]!(await loadAll(commands));
  await reportRows(io, invocation, { schema: "parscale.help/1" }, rows);
}
