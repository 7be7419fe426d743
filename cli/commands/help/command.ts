/** `parscale help [TOPIC]`: a command's complete help, a topic as a table, or the manual page. */
import { environmentName } from "../../framework/table.ts";
import { EXIT_CODES } from "../../output/exit_codes.ts";
import { writeText } from "../../output/sink.ts";
import type { Row } from "../../output/table.ts";
import { defineCommand, flagsOf } from "../../framework/command.ts";
import { commands, loadAll } from "../mod.ts";

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
  { variable: "XDG_CACHE_HOME", meaning: "folder of caches, ours and those of the hub" },
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

async function environmentRows(): Promise<readonly Row[]> {
  const loaded = await loadAll();
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

async function presetRows(): Promise<readonly Row[]> {
  return (await loadAll()).flatMap((command) =>
    Object.entries(command.presets ?? {}).map(([preset, { summary, values }]) => ({
      command: command.name,
      preset,
      meaning: summary,
      values: Object.entries(values).map(([name, value]) => `--${name} ${value}`).join(" "),
    }))
  );
}

const TOPICS: Readonly<Record<string, () => Promise<readonly Row[]> | readonly Row[]>> = {
  "exit-codes": () => EXIT_CODES.map(({ code, meaning }) => ({ code, meaning })),
  formats: () => FORMAT_ROWS,
  environment: environmentRows,
  presets: presetRows,
};

/** Topics that are text and no table. */
const MAN = "man";
const FLAGS = "flags";

async function manualPage(): Promise<string> {
  const { manPage } = await import("../../framework/man.ts");
  return manPage(await loadAll(), [
    { title: "OUTPUT FORMATS", rows: FORMAT_ROWS },
    { title: "ENVIRONMENT", rows: await environmentRows() },
    { title: "EXIT STATUS", rows: EXIT_CODES.map(({ code, meaning }) => ({ code, meaning })) },
  ]);
}

/** The command. */
export const command = defineCommand({
  name: "help",
  summary: "Show help for a command or topic",
  description: "Without a topic, lists the commands. A command's name gives the same text as its " +
    "--help. The topic flags explains the flags of every command, and man is the manual page of the " +
    "whole program in roff. All other topics are tables and honour --format.",
  examples: [
    { text: "Everything about a command", line: "parscale help completions" },
    { text: "What an exit code means", line: "parscale help exit-codes" },
    { text: "The same for a program", line: "parscale help exit-codes --json" },
    {
      text: "Install the manual page",
      line: "parscale help man -o ~/.local/share/man/man1/parscale.1",
    },
  ],
  arguments: [{
    name: "TOPIC",
    summary: "A command or a topic",
    choices: [FLAGS, ...Object.keys(TOPICS), MAN, ...commands.map(({ name }) => name)],
  }],
  flags: {},
  async run(values, io, invocation) {
    const { commonHelp, fullHelp, programHelp } = await import("../../framework/help.ts");
    const { PLAIN } = await import("../../output/color.ts");
    const [topic] = values.arguments;
    const paint = values.out === undefined ? io.palette("stdout") : PLAIN;
    const options = { width: Math.min(io.width(), 100), paint };
    const entry = commands.find(({ name }) => name === topic);
    if (topic === undefined || entry !== undefined) {
      const text = entry === undefined
        ? programHelp(commands, options)
        : fullHelp((await entry.load()).command, options);
      writeText(io, text, values.out, values.overwrite);
      return;
    }
    if (topic === FLAGS) {
      writeText(io, commonHelp(options), values.out, values.overwrite);
      return;
    }
    if (topic === MAN) {
      writeText(io, await manualPage(), values.out, values.overwrite);
      return;
    }
    const rows = await TOPICS[topic]!();
    const { openReport } = await import("../../output/report.ts");
    using report = openReport(io, invocation, { schema: "parscale.help/1" });
    for (const row of rows) report.row(row);
    await report.finish();
  },
});
