/**
 * The registry: name and summary of every command, whose flags are loaded for help and its body to run it.
 *
 * The specifiers are literal so that a compiled program contains the files; `lazy-dynamic-imports` in
 * deno.json keeps Deno from reading what they reach before it is asked for, which took most of the time
 * of `--help`. A command is called by its whole name only.
 */
import { type CommandEntry, entry } from "../framework/command.ts";

/** In the order in which help lists them. */
export const commands: readonly CommandEntry[] = [
  entry(
    "convert",
    "Convert a checkpoint to ParScale, or back",
    () => import("./convert/flags.ts"),
    () => import("./convert/run.ts"),
  ),
  entry(
    "train",
    "Train a model, or only its prefixes and aggregator",
    () => import("./train/flags.ts"),
    () => import("./train/run.ts"),
  ),
  entry(
    "generate",
    "Generate text from prompts or messages",
    () => import("./generate/flags.ts"),
    () => import("./generate/run.ts"),
  ),
  entry(
    "serve",
    "Serve a model to OpenAI clients over HTTP",
    () => import("./serve/flags.ts"),
    () => import("./serve/run.ts"),
  ),
  entry(
    "chat",
    "Talk to a model in the terminal",
    () => import("./chat/flags.ts"),
    () => import("./chat/run.ts"),
  ),
  entry(
    "score",
    "Compute log-probabilities of tokens or texts",
    () => import("./score/flags.ts"),
    () => import("./score/run.ts"),
  ),
  entry("eval", "Run benchmarks", () => import("./eval/flags.ts"), () => import("./eval/run.ts")),
  entry(
    "compare",
    "Compare ParScale with beam search on the same rows",
    () => import("./compare/flags.ts"),
    () => import("./compare/run.ts"),
  ),
  entry(
    "visualize",
    "Show the aggregation weights of the streams per token",
    () => import("./visualize/flags.ts"),
    () => import("./visualize/run.ts"),
  ),
  entry(
    "inspect",
    "Show a checkpoint's shape and memory",
    () => import("./inspect/flags.ts"),
    () => import("./inspect/run.ts"),
  ),
  entry(
    "cost",
    "Estimate memory and latency on given hardware",
    () => import("./cost/flags.ts"),
    () => import("./cost/run.ts"),
  ),
  entry(
    "fit",
    "Fit a scaling law to losses and query it",
    () => import("./fit/flags.ts"),
    () => import("./fit/run.ts"),
  ),
  entry(
    "plot",
    "Draw loss curves of training runs",
    () => import("./plot/flags.ts"),
    () => import("./plot/run.ts"),
  ),
  entry(
    "bench",
    "Benchmark decode, prefill and training, or compare timings",
    () => import("./bench/flags.ts"),
    () => import("./bench/run.ts"),
  ),
  entry(
    "export",
    "Export a model to ONNX",
    () => import("./export/flags.ts"),
    () => import("./export/run.ts"),
  ),
  entry(
    "doctor",
    "Check this machine: devices, libraries, tools",
    () => import("./doctor/flags.ts"),
    () => import("./doctor/run.ts"),
  ),
  entry(
    "help",
    "Show help for a command or topic",
    () => import("./help/flags.ts"),
    () => import("./help/run.ts"),
  ),
  entry(
    "completions",
    "Print shell completions",
    () => import("./completions/flags.ts"),
    () => import("./completions/run.ts"),
  ),
];
