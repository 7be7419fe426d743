/**
 * Runs the model over texts: from tokens to weights, entropies and log-probabilities.
 *
 * Texts are computed side by side, `--batch` at a time, in the order they came.
 */
import { DataError } from "../../../core/base/errors.ts";
import type { WeightedText } from "../../../core/analysis/streams.ts";
import { checkTokens } from "../../../core/generate/prefill.ts";
import { scoreBatch } from "../../../core/generate/score.ts";
import { scoreStreams } from "../../../core/generate/stream_scores.ts";
import type { Session } from "../../../core/session/session.ts";
import type { Io } from "../../output/io.ts";
import { startProgress } from "../../output/progress.ts";
import { encodeText, type RawText } from "./input.ts";
import { piecesOf } from "./token_text.ts";
import type { VisualizeValues } from "./flags.ts";

/** A text with all that is shown of it. */
export interface MeasuredText extends WeightedText {
  readonly id: unknown;
  /** Text of every token; see `piecesOf`. */
  readonly pieces: readonly (string | undefined)[];
  /** log p of tokens 1 and on. */
  readonly logprobs: Float32Array;
  /** The same under each stream alone, [T − 1][P]; only for --diversity. */
  readonly streamLogprobs: readonly Float32Array[] | undefined;
}

/** Encodes all texts, so that one the model cannot take is refused before any is computed. */
export async function encodeTexts(
  raw: readonly RawText[],
  model: Session,
  { maxTokens }: Pick<VisualizeValues, "maxTokens">,
): Promise<{ id: unknown; tokens: readonly number[] }[]> {
  const { config } = model.engine;
  const encoded = [];
  for (const text of raw) {
    const all = await encodeText(text, () => model.openTokenizer());
    const tokens = all.slice(0, maxTokens);
    if (tokens.length === 0) {
      throw new DataError(
        `${text.place} is empty`,
      );
    }
    const limit = config.maxPositionEmbeddings;
    if (tokens.length > limit) {
      throw new DataError(
        `${text.place} has ${tokens.length} tokens, more than the model's context of ${limit}`,
        { hints: [`pass --max-tokens ${limit} to read its beginning, or split the text`] },
      );
    }
    checkTokens(config, tokens, `visualize ${text.place}`);
    encoded.push({ id: text.id, tokens });
  }
  return encoded;
}

/** Computes what is shown. */
export async function* measureTexts(
  texts: readonly { readonly id: unknown; readonly tokens: readonly number[] }[],
  model: Session,
  { batch, diversity }: Pick<VisualizeValues, "batch" | "diversity">,
  io: Io,
): AsyncGenerator<MeasuredText> {
  const tokenizer = await model.openTokenizerIfAny();
  const total = texts.reduce((sum, { tokens }) => sum + tokens.length, 0);
  using progress = startProgress(io, { label: "Reading", unit: "tokens", total });
  let done = 0;
  for (let from = 0; from < texts.length; from += batch) {
    const group = texts.slice(from, from + batch);
    const scores = diversity
      ? await scoreStreams(model.engine, group.map(({ tokens }) => tokens))
      : await scoreBatch(
        model.engine,
        group.map(({ tokens }) => ({ tokens, from: 1 })),
        { weights: true },
      );
    for (const [i, { id, tokens }] of group.entries()) {
      const score = scores[i]!;
      yield {
        id,
        tokens,
        pieces: piecesOf(tokens, tokenizer),
        weights: score.weights!,
        logprobs: score.tokenLogprobs,
        streamLogprobs: "streamLogprobs" in score
          ? score.streamLogprobs as readonly Float32Array[]
          : undefined,
      };
      progress.update(done += tokens.length);
    }
  }
}
