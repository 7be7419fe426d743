/**
 * Tokens of a context and its continuation, split as lm-evaluation-harness does.
 *
 * White space at the end of the context moves to the front of the continuation, then both are
 * encoded together, and what goes beyond the context's own token count is the continuation. Nothing
 * checks that the context's own tokens begin the whole. Where a merge crosses the border, they are
 * used all the same and some of the continuation is lost, so that published scores can be reproduced.
 */
import { DataError } from "../base/errors.ts";
import { rstrip } from "../base/python_text.ts";
import type { Tokenizer } from "./types.ts";

/**
 * The token that stands before a text without context: the tokenizer's beginning-of-text token, or
 * else the model's first end token.
 */
export function startTokenOf(
  tokenizer: Pick<Tokenizer, "namedTokens" | "idOf">,
  eosTokenIds: readonly number[],
): number | undefined {
  const { bos_token: bos } = tokenizer.namedTokens;
  return (bos === undefined ? undefined : tokenizer.idOf(bos)) ?? eosTokenIds[0];
}

/**
 * All tokens of the pair and the first one to score.
 *
 * An empty context stands for the start of a text: `startToken` then takes its place. With `keepsText` a
 * continuation into which a merge would reach is encoded by itself, so that all of it is there.
 * @throws {DataError} when there is nothing to score, or no start token for an empty context
 */
export function encodePair(
  tokenizer: Pick<Tokenizer, "encode">,
  context: string,
  continuation: string,
  startToken: number | undefined,
  { keepsText = false } = {},
): { tokens: number[]; from: number } {
  if (continuation === "") {
    throw new DataError("cannot score an empty continuation");
  }
  if (context === "") {
    const tokens = tokenizer.encode(continuation, { frame: false });
    if (startToken === undefined) {
      throw new DataError(
        "cannot score after an empty prompt: the model has no end token to start from",
        { hints: ["give the row a prompt, or add eos_token_id to the model's config.json"] },
      );
    }
    return { tokens: tokens[0] === startToken ? tokens : [startToken, ...tokens], from: 1 };
  }
  const kept = rstrip(context);
  const before = tokenizer.encode(kept);
  const whole = tokenizer.encode(context + continuation);
  const isCut = keepsText && before.some((id, i) => whole[i] !== id);
  const after = isCut
    ? encodeApart(tokenizer, context.slice(kept.length) + continuation)
    : whole.slice(before.length);
  // Where nothing is left of the context, the first token has nothing to be predicted from.
  return { tokens: [...before, ...after], from: Math.max(1, before.length) };
}

/** Tokens of a text that continues another, without the blank that some tokenizers put before a text. */
function encodeApart(tokenizer: Pick<Tokenizer, "encode">, text: string): number[] {
  const encode = (text: string) => tokenizer.encode(text, { frame: false });
  const lineEnd = encode("\n"), line = encode(`\n${text}`);
  return lineEnd.every((id, i) => line[i] === id) ? line.slice(lineEnd.length) : encode(text);
}
