/**
 * Perplexity of texts: how surprised the model is, per token and per byte.
 *
 *     {"text": "Once upon a time ..."}
 *
 * Takes any text file, or the rows of a JSON lines file or table with a column `text`. Long texts are
 * cut into windows of the model's context, each of which sees one token before it.
 */
import type { PerplexityTask } from "../harness/task.ts";

export const perplexity: PerplexityTask = {
  kind: "perplexity",
  name: "perplexity",
  title: "Perplexity",
  version: 1,
  source: "any text",
  folder: "perplexity",
  rows: ["test", "*"],
  metrics: ["perplexity", "bits_per_byte", "loss"],
  shots: { count: 0 },
  read: (row) => ({ text: row.text("text"), answer: "" }),
  derive({ nats, tokens, bytes }) {
    return {
      perplexity: Math.exp(nats! / tokens!),
      bits_per_byte: nats! / Math.LN2 / bytes!,
      loss: nats! / tokens!,
    };
  },
};
