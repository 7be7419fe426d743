/** `parscale train`: a checkpoint and data in, a run folder with trained checkpoints out. */
import { trainFlags } from "./flags.ts";
import { trainPresets } from "./presets.ts";
import { defineCommand } from "../../framework/command.ts";

export const command = defineCommand({
  name: "train",
  summary: "Train a model, or only its prefixes and aggregator",
  description:
    "Trains a Qwen, Llama or ParScale checkpoint on texts, prompts with completions, conversations or " +
    "rows of tokens. A plain checkpoint is given streams with --streams. Documents are packed into " +
    "rows without seeing each other; the loss is the mean over all tokens that count.\n\n" +
    "The run folder gets a line of metrics per step and checkpoints; --resume continues from the " +
    "last one, bit for bit. It can be passed as --model or --adapter to every other command.\n\n" +
    "One rate for everything is the paper's way. In short runs prefixes need a far higher one, and " +
    "the aggregator one of its own: see --lr-prefix and --lr-aggregator.",
  examples: [
    {
      text: "Only prefixes and aggregator of four streams",
      line: "parscale train --model qwen2.5-0.5b --streams 4 --train-params introduced " +
        "--data corpus.jsonl.gz --tokens 20M --out run",
    },
    {
      text: "Go on after an interruption",
      line: "parscale train --resume --out run",
    },
    {
      text: "See what would be done, with the memory it takes",
      line: "parscale train --preset paper-cpt --model qwen-p4 --data corpus --tokens 1B " +
        "--micro-batch 4 --out run --dry-run",
    },
  ],
  flags: trainFlags,
  atLeastOneOf: [["model", "config-from", "resume"], ["data", "resume"]],
  presets: trainPresets,
  savesOnInterrupt: true,
  async plan(values, io) {
    const { planRun } = await import("./plan.ts");
    return await planRun(values, io);
  },
  async run(values, io, invocation) {
    const { runTrain } = await import("./run.ts");
    await runTrain(values, io, invocation);
  },
});
