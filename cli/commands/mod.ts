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
    summary: "Turn a checkpoint into a ParScale one, or back",
    load: () => import("./convert/command.ts"),
  },
  {
    name: "train",
    summary: "Train a model: all of it, or prefixes and aggregator alone",
    load: () => import("./train/command.ts"),
  },
  {
    name: "generate",
    summary: "Continue prompts or answer messages",
    load: () => import("./generate/command.ts"),
  },
  {
    name: "score",
    summary: "Compute log-probabilities of given tokens or texts",
    load: () => import("./score/command.ts"),
  },
  {
    name: "eval",
    summary: "Run benchmarks and score the answers",
    load: () => import("./eval/command.ts"),
  },
  {
    name: "compare",
    summary: "Compare streams with beam search on the same rows",
    load: () => import("./compare/command.ts"),
  },
  {
    name: "visualize",
    summary: "Show which stream weighs most at every token",
    load: () => import("./visualize/command.ts"),
  },
  {
    name: "inspect",
    summary: "Show what is in a checkpoint and the memory it needs",
    load: () => import("./inspect/command.ts"),
  },
  {
    name: "cost",
    summary: "Estimate memory and latency on given hardware",
    load: () => import("./cost/command.ts"),
  },
  {
    name: "fit",
    summary: "Fit a scaling law to losses and ask it questions",
    load: () => import("./fit/command.ts"),
  },
  {
    name: "plot",
    summary: "Draw loss curves of training runs",
    load: () => import("./plot/command.ts"),
  },
  {
    name: "bench",
    summary: "Time decoding and prefill, or compare timings",
    load: () => import("./bench/command.ts"),
  },
  {
    name: "export",
    summary: "Write a model as ONNX files that run without parscale",
    load: () => import("./export/command.ts"),
  },
  {
    name: "doctor",
    summary: "Check what works on this machine",
    load: () => import("./doctor/command.ts"),
  },
  {
    name: "help",
    summary: "Explain a command or a topic",
    load: () => import("./help/command.ts"),
  },
  {
    name: "completions",
    summary: "Print completions for a shell",
    load: () => import("./completions/command.ts"),
  },
];

/** All commands with their tables, for help topics and completions. */
export async function loadAll(): Promise<Command[]> {
  return await Promise.all(commands.map(async (entry) => (await entry.load()).command));
}
