/**
 * Turns requests into tokens: pairs to score, prompts to continue, texts to read in windows.
 *
 * Requests longer than the model's context are truncated on the left, as in lm-evaluation-harness, so that
 * examples are lost first; they are counted.
 */
import { encodePair } from "../../tokenizer/pair.ts";
import type { Tokenizer } from "../../tokenizer/types.ts";
import type { ScoreSet } from "../../generate/score_sets.ts";
import type { LikelihoodRequest, TextRequest } from "./documents.ts";

/** Properties of a model that encoding depends on. */
export interface Encoding {
  readonly tokenizer: Pick<Tokenizer, "encode">;
  /** Most tokens the model reads. */
  readonly maxLength: number;
  /** Stands before a text that begins with nothing; see `startTokenOf`. */
  readonly startToken: number | undefined;
}

/** Encodes requests and counts what was cut. */
export class RequestEncoder {
  /** Requests truncated on the left so far. */
  truncated = 0;

  constructor(private readonly encoding: Encoding) {}

  /** Sequences of the choices of one question. The last token is scored, not read. */
  pairs(requests: readonly LikelihoodRequest[]): ScoreSet {
    const { tokenizer, startToken, maxLength } = this.encoding;
    return requests.map(({ context, continuation }) => {
      const { tokens, from } = encodePair(tokenizer, context, continuation, startToken);
      const cut = Math.max(0, tokens.length - maxLength - 1);
      if (cut > 0) this.truncated++;
      return { tokens: tokens.slice(cut), from: Math.max(1, from - cut) };
    });
  }

  /** Tokens of a prompt that leaves room for the answer. */
  prompt({ context, maxTokens }: TextRequest): number[] {
    const { tokenizer, maxLength } = this.encoding;
    const tokens = tokenizer.encode(context);
    const room = Math.max(1, maxLength - maxTokens);
    if (tokens.length > room) this.truncated++;
    return tokens.slice(-room);
  }

  /**
   * Windows over a whole text, as the harness cuts them: every token is scored once. A window scores up
   * to `maxLength` tokens; what the last one leaves free is filled with tokens scored before, as context.
   */
  windows({ continuation }: LikelihoodRequest): ScoreSet {
    const { tokenizer, startToken, maxLength } = this.encoding;
    const tokens = tokenizer.encode(continuation);
    if (startToken !== undefined) tokens.unshift(startToken);
    // Places of tokens; the one at 0 is only read.
    const last = tokens.length - 1;
    const count = Math.max(1, Math.ceil(last / maxLength));
    return Array.from({ length: count }, (_, i) => {
      const end = Math.min((i + 1) * maxLength, last);
      const first = Math.max(0, end - maxLength);
      return { tokens: tokens.slice(first, end + 1), from: i * maxLength + 1 - first };
    });
  }
}
