/**
 * Perplexity of texts per token, word and byte.
 *
 *     {"text": "Once upon a time ..."}
 *
 * Takes any text file, or the rows of a JSON lines file or table with a column `text`. Windows over long
 * texts, and the word and byte figures, are those of lm-evaluation-harness.
 */
import type { PerplexityTask } from "../harness/task.ts";

export const perplexity: PerplexityTask = {
  kind: "perplexity",
  name: "perplexity",
  title: "Perplexity",
  version: 2,
  source: "any text",
  folder: "perplexity",
  rows: ["test", "*"],
  metrics: ["perplexity", "word_perplexity", "byte_perplexity", "bits_per_byte", "loss"],
  shots: { count: 0 },
  read: (row) => ({ text: row.text("text"), answer: "" }),
  derive({ nats, tokens, words, bytes }) {
    return {
      perplexity: Math.exp(nats! / tokens!),
      word_perplexity: Math.exp(nats! / words!),
      byte_perplexity: Math.exp(nats! / bytes!),
      bits_per_byte: nats! / Math.LN2 / bytes!,
      loss: nats! / tokens!,
    };
  },
};
