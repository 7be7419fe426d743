/**
 * The registry: one line per command, whose flags are loaded for help and its body to run it.
 *
 * The specifiers are literal so that a compiled program contains the files; `lazy-dynamic-imports` in
 * deno.json keeps Deno from reading what they reach before it is asked for, which took most of the time
 * of `--help`. A command is called by its whole name only.
 */
import { type CommandEntry, entry } from "../framework/command.ts";
import { SUMMARIES } from "./summaries.ts";

/** In the order in which help lists them. */
export const commands: readonly CommandEntry[] = [
  entry(
    "convert",
    SUMMARIES.convert,
    () => import("./convert/flags.ts"),
    () => import("./convert/run.ts"),
  ),
  entry("train", SUMMARIES.train, () => import("./train/flags.ts"), () => import("./train/run.ts")),
  entry(
    "generate",
    SUMMARIES.generate,
    () => import("./generate/flags.ts"),
    () => import("./generate/run.ts"),
  ),
  entry("serve", SUMMARIES.serve, () => import("./serve/flags.ts"), () => import("./serve/run.ts")),
  entry("chat", SUMMARIES.chat, () => import("./chat/flags.ts"), () => import("./chat/run.ts")),
  entry("score", SUMMARIES.score, () => import("./score/flags.ts"), () => import("./score/run.ts")),
  entry("merge", SUMMARIES.merge, () => import("./merge/flags.ts"), () => import("./merge/run.ts")),
  entry("eval", SUMMARIES.eval, () => import("./eval/flags.ts"), () => import("./eval/run.ts")),
  entry(
    "compare",
    SUMMARIES.compare,
    () => import("./compare/flags.ts"),
    () => import("./compare/run.ts"),
  ),
  entry(
    "visualize",
    SUMMARIES.visualize,
    () => import("./visualize/flags.ts"),
    () => import("./visualize/run.ts"),
  ),
  entry(
    "inspect",
    SUMMARIES.inspect,
    () => import("./inspect/flags.ts"),
    () => import("./inspect/run.ts"),
  ),
  entry("cost", SUMMARIES.cost, () => import("./cost/flags.ts"), () => import("./cost/run.ts")),
  entry("fit", SUMMARIES.fit, () => import("./fit/flags.ts"), () => import("./fit/run.ts")),
  entry("plot", SUMMARIES.plot, () => import("./plot/flags.ts"), () => import("./plot/run.ts")),
  entry("bench", SUMMARIES.bench, () => import("./bench/flags.ts"), () => import("./bench/run.ts")),
  entry(
    "export",
    SUMMARIES.export,
    () => import("./export/flags.ts"),
    () => import("./export/run.ts"),
  ),
  entry(
    "doctor",
    SUMMARIES.doctor,
    () => import("./doctor/flags.ts"),
    () => import("./doctor/run.ts"),
  ),
  entry("help", SUMMARIES.help, () => import("./help/flags.ts"), () => import("./help/run.ts")),
  entry(
    "completions",
    SUMMARIES.completions,
    () => import("./completions/flags.ts"),
    () => import("./completions/run.ts"),
  ),
];
