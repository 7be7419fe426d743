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
  const endsLine = (token: number) => tokenizer.decode([token]).endsWith("\n");
  const segments = text === undefined
    ? ownSegments(tokenizer, streams, prefixTokens)
    : cutSegments(tokenizer.encode(text, { frame: false }), streams, prefixTokens, endsLine);
  const values = await prefixesFromText(session.engine, segments);
  if (streams > 1 && config.aggregator === "dynamic") {
    // Equal logits of the softmax; the layer before it stays random, so that both can learn.
    values.set("model.aggregate_layer.2.weight", new Float32Array(streams * config.hiddenSize));
  }
  return values;
}

/** Pieces of our own text, to their ends; more streams than pieces end inside them. */
export function ownSegments(tokenizer: Tokenizer, count: number, length: number): number[][] {
  const pieces = TEXT.trimEnd().split(BORDER).map((piece) =>
    tokenizer.encode(`${piece}\n\n`, { frame: false })
  );
  const ends = pieces.map((_, i) => pieces.slice(0, i + 1).flat().length);
  const all = pieces.flat();
  return Array.from({ length: count }, (_, p) => {
    const end = ends[p % pieces.length]! - Math.floor(p / pieces.length) * length;
    return Array.from({ length }, (_, i) => all.at((end - length + i) % all.length)!);
  });
}

/**
 * Cuts `count` segments of `length` tokens, evenly spread over a text, the last to its end, the others to the
 * next end of a line: a model takes up what breaks off, and forgets what it was asked. They overlap only
 * when the text is shorter than all of them together.
 * @throws {DataError} for a text shorter than a segment
 */
export function cutSegments(
  tokens: readonly number[],
  count: number,
  length: number,
  endsLine: (token: number) => boolean,
): number[][] {
  const spare = tokens.length - length;
  if (spare < 0) {
    throw new DataError(
      `the text of \`--prefix-text\` has ${tokens.length} tokens, fewer than \`--prefix-tokens ${length}\``,
    );
  }
  return Array.from({ length: count }, (_, p) => {
    const [end, next] = [p, p + 1].map((i) => length + Math.floor(i * spare / (count - 1 || 1)));
    const line = tokens.slice(end! - 1, next! - 1).findIndex(endsLine);
    const cut = p === count - 1 ? tokens.length : end! + Math.max(0, line);
    return tokens.slice(cut - length, cut);
  });
}
