/** `parscale score`: rows of tokens or text in, log-probabilities out. */
import { engineFlags, rowFlags, shardFlag } from "../../framework/common.ts";
import { keptQuantizeFlags, modelArgument, modelFlags } from "../../input/model_flags.ts";
import { defineCommand } from "../../framework/command.ts";

export const command = defineCommand({
  description:
    "Reads JSON lines from FILE or stdin. A row has `tokens`, a list of ids, all scored but the " +
    "first; or `text`, all scored; or `prompt` and `continuation`, of which the continuation is " +
    "scored. White space at the end of a prompt counts to the continuation. A text, and a " +
    "continuation of an empty prompt, is scored after the model's beginning-of-text token or, where it " +
    "has none, its end token.\n\n" +
    "Each result has `id` (the row number where the row has none), `tokens`, `token_logprobs` " +
    "(natural logarithm), their sum `loglikelihood`, and `is_greedy`: whether greedy decoding " +
    "gives these very tokens.",
  examples: {
    "Score one continuation":
      `echo '{"prompt":"2+2=","continuation":"4"}' | parscale score --model qwen-p4 --jsonl`,
    "The second of four parts, computed elsewhere":
      "parscale score rows.jsonl --model qwen-p4 --shard 2/4 --jsonl -o scores-2.jsonl",
    "Add the weight of every stream at every token":
      "parscale score rows.jsonl --model qwen-p4 --stream-weights --jsonl -o scores.jsonl",
  },
  arguments: [modelArgument, {
    name: "FILE",
    summary: "rows as JSON lines; stdin when absent or -",
  }],
  flags: {
    ...modelFlags,
    ...engineFlags,
    ...keptQuantizeFlags,
    shard: {
      ...shardFlag,
      group: "Input",
      details: `${shardFlag.details} Batches are dealt in turn, so that every score is that of a ` +
        "single run.",
    },
    ...rowFlags,
    "stream-weights": {
      type: "switch",
      group: "Model",
      summary: "Add the aggregation weights per token",
      details: "`weights` then holds a row of P numbers for every token: the shares in which the " +
        "streams were mixed at that token to predict the next.",
    },
  },
  savesOnInterrupt: ({ out }) => out !== undefined && out !== "-",
});
