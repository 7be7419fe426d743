/** `parscale bench`: how long decoding and prefill take, and whether they have become slower. */
import { benchFlags } from "./flags.ts";
import { defineCommand } from "../../framework/command.ts";

export const command = defineCommand({
  name: "bench",
  summary: "Benchmark decode and prefill, or compare timings",
  description:
    "Times a model on made-up tokens: decode, one step after another behind --context cached " +
    "tokens, and prefill, a prompt of --prompt tokens. One row per combination of the lists. " +
    "All engines are open at once and take turns, round by round.\n\n" +
    "A row holds every sample in `samples_ms`: the time of a step for decode, of the whole prompt " +
    "for prefill. `median_ms` is their median, `spread_ms` the distance between their quartiles, " +
    "`tokens_per_s` what the median means for all sequences together, `ratio` the median over that " +
    "of the first row of its kind. `introduced` tells whether prefixes and aggregator are the " +
    "model's own, random because another number of streams was asked for, or absent.\n\n" +
    "With --compare nothing is timed: rows are paired with those of --against, and the exit code " +
    "is 1 when a median is longer than its partner's by more than --tolerance. Rows without a " +
    "partner are named and decide nothing; without any pair at all the files do not belong " +
    "together, which is bad data.",
  examples: [
    {
      text: "What do streams cost on this machine?",
      line: "parscale bench --model qwen-p4 --streams 1..8*2",
    },
    {
      text: "Quantised against exact, behind a long context",
      line: "parscale bench --model qwen-p4 --what decode --quantize none,q8,q4 --context 4k",
    },
    {
      text: "Has anything become slower?",
      line: "parscale bench --model run --streams 1..8*2 --jsonl | " +
        "parscale bench --compare - --against last.jsonl",
    },
  ],
  flags: benchFlags,
  atLeastOneOf: [["model", "compare"]],
  async plan(values, io) {
    const { planBench } = await import("./run.ts");
    return await planBench(values, io);
  },
  async run(values, io, invocation) {
    const { runBench } = await import("./run.ts");
    return await runBench(values, io, invocation);
  },
});
