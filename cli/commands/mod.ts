/**
 * The registry: one line per command, each loaded only when it is chosen.
 *
 * The specifiers are literal so that a compiled program contains the files; `lazy-dynamic-imports` in
 * deno.json keeps Deno from reading what they reach before it is asked for, which took most of the time
 * of `--help`. A command is called by its whole name only.
 */
import type { Command, CommandEntry } from "../framework/command.ts";

/** In the order in which help lists them. */
export const commands: readonly CommandEntry[] = [
  {
    name: "convert",
    summary: "Convert a checkpoint to ParScale, or back",
    load: () => import("./convert/command.ts"),
  },
  {
    name: "train",
    summary: "Train a model, or only its prefixes and aggregator",
    load: () => import("./train/command.ts"),
  },
  {
    name: "generate",
    summary: "Generate text from prompts or messages",
    load: () => import("./generate/command.ts"),
  },
  {
    name: "serve",
    summary: "Serve a model to OpenAI clients over HTTP",
    load: () => import("./serve/command.ts"),
  },
  {
    name: "chat",
    summary: "Talk to a model in the terminal",
    load: () => import("./chat/command.ts"),
  },
  {
    name: "score",
    summary: "Compute log-probabilities of tokens or texts",
    load: () => import("./score/command.ts"),
  },
  {
    name: "merge",
    summary: "Merge the parts of a sharded generate or score",
    load: () => import("./merge/command.ts"),
  },
  {
    name: "eval",
    summary: "Run benchmarks",
    load: () => import("./eval/command.ts"),
  },
  {
    name: "compare",
    summary: "Compare ParScale with beam search on the same rows",
    load: () => import("./compare/command.ts"),
  },
  {
    name: "visualize",
    summary: "Show the aggregation weights of the streams per token",
    load: () => import("./visualize/command.ts"),
  },
  {
    name: "inspect",
    summary: "Show a checkpoint's shape and memory",
    load: () => import("./inspect/command.ts"),
  },
  {
    name: "cost",
    summary: "Estimate memory and latency on given hardware",
    load: () => import("./cost/command.ts"),
  },
  {
    name: "fit",
    summary: "Fit a scaling law to losses and query it",
    load: () => import("./fit/command.ts"),
  },
  {
    name: "plot",
    summary: "Draw loss curves of training runs",
    load: () => import("./plot/command.ts"),
  },
  {
    name: "bench",
    summary: "Benchmark decode and prefill, or compare timings",
    load: () => import("./bench/command.ts"),
  },
  {
    name: "export",
    summary: "Export a model to ONNX",
    load: () => import("./export/command.ts"),
  },
  {
    name: "doctor",
    summary: "Check this machine: devices, libraries, tools",
    load: () => import("./doctor/command.ts"),
  },
  {
    name: "help",
    summary: "Show help for a command or topic",
    load: () => import("./help/command.ts"),
  },
  {
    name: "completions",
    summary: "Print shell completions",
    load: () => import("./completions/command.ts"),
  },
];

/** All commands with their tables, for help topics and completions. */
export async function loadAll(): Promise<Command[]> {
  return await Promise.all(commands.map(async (entry) => (await entry.load()).command));
}
