/** First values of ParScale parameters with which a pretrained model stays as good as it is. */
import { DataError } from "../base/errors.ts";
import { prefixesFromText } from "../generate/prefix_init.ts";
import type { ModelConfig } from "../model/config.ts";
import type { Tokenizer } from "../tokenizer/types.ts";
import type { Session } from "./session.ts";
import TEXT from "./start_text.txt" with { type: "text" };

/** Line between the pieces of the text that parscale brings along. */
const BORDER = "\n%%\n";

/**
 * Prefixes of every stream from a piece of text, as if it stood before everything the model reads, and an
 * aggregator that averages the streams. `session` is the plain model, `config` that of the new one;
 * without a text each stream takes a piece in another language or of another kind.
 * @throws {DataError} for a text shorter than a prefix
 */
export async function textStart(
  session: Session,
  config: ModelConfig,
  text?: string,
): Promise<Map<string, Float32Array<ArrayBuffer>>> {
  const { streams, prefixTokens } = config;
  const tokenizer = await session.openTokenizer();
  const segments = text === undefined
    ? ownSegments(tokenizer, streams, prefixTokens)
    : cutSegments(tokenizer.encode(text, { frame: false }), streams, prefixTokens);
  const values = await prefixesFromText(session.engine, segments);
  if (streams > 1 && config.aggregator === "dynamic") {
    // Equal logits of the softmax; the layer before it stays random, so that both can learn.
    values.set("model.aggregate_layer.2.weight", new Float32Array(streams * config.hiddenSize));
  }
  return values;
}

/** Pieces of our own text from the first on; more streams than pieces continue inside them. */
function ownSegments(tokenizer: Tokenizer, count: number, length: number): number[][] {
  const pieces = TEXT.split(BORDER).map((piece) => tokenizer.encode(piece, { frame: false }));
  const starts = pieces.map((_, i) => pieces.slice(0, i).flat().length);
  const all = pieces.flat();
  return Array.from({ length: count }, (_, p) => {
    const start = starts[p % pieces.length]! + Math.floor(p / pieces.length) * length;
    return Array.from({ length }, (_, i) => all[(start + i) % all.length]!);
  });
}

/**
 * Cuts `count` segments of `length` tokens, evenly spread over a text. They overlap only when the text
 * is shorter than all of them together.
 * @throws {DataError} for a text shorter than a segment
 */
export function cutSegments(tokens: readonly number[], count: number, length: number): number[][] {
  const last = tokens.length - length;
  if (last < 0) {
    throw new DataError(
      `the text of \`--prefix-text\` has ${tokens.length} tokens, fewer than \`--prefix-tokens ${length}\``,
    );
  }
  return Array.from({ length: count }, (_, p) => {
    const start = count === 1 ? 0 : Math.floor(p * last / (count - 1));
    return tokens.slice(start, start + length);
  });
}
