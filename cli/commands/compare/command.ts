/** `parscale compare`: streams against beams, on the same rows. */
import { compareFlags } from "./flags.ts";
import { defineCommand } from "../../framework/command.ts";

export const command = defineCommand({
  name: "compare",
  summary: "Compare ParScale with beam search on the same rows",
  description:
    "Evaluates a model with one stream, the same with beam search, and models with several streams, " +
    "on benchmarks that are answered in free words: the paper's comparison of ParScale with " +
    "inference-time scaling. Differences are taken row by row, with 95% intervals, and what one " +
    "answer takes in time and memory stands beside the scores.\n\n" +
    "Finished evaluations are compared as well: pass their folders as arguments, the one to compare " +
    "with first, or - for documents of `parscale eval --json` on stdin, one after the other. Of those " +
    "whose folder is gone only means are known, and intervals are wider. The exit code is 1 when a " +
    "model with streams is worse beyond its interval.",
  examples: [
    {
      text: "The paper's table",
      line: "parscale compare --model qwen --parscale p2 --parscale p4 --parscale p8 " +
        "--tasks gsm8k,minerva_math --data bench --out table",
    },
    {
      text: "Two finished evaluations",
      line: "parscale compare results-p1 results-p4 --json",
    },
    { text: "Documents that were kept", line: "cat p1.json p4.json | parscale compare -" },
  ],
  arguments: [
    {
      name: "FOLDER",
      summary: "Finished evaluations to compare, in place of models; - reads documents from stdin",
      repeated: true,
    },
  ],
  flags: compareFlags,
  atLeastOneOf: [["model", "FOLDER"], ["tasks", "FOLDER"]],
  savesOnInterrupt: true,
  async plan(values) {
    if (values.arguments.length > 0) return { lines: [] };
    const { planMethods } = await import("./methods.ts");
    const methods = await planMethods(values);
    const lines = methods.map(({ args }) => `parscale eval ${args.join(" ")}`);
    return { lines, results: { evaluations: methods.length } };
  },
  async run(values, io, invocation) {
    const { runCompare } = await import("./run.ts");
    return await runCompare(values, io, invocation);
  },
});
