/** Checks of lengths that a user asks for against the model's context. */
import { UsageError } from "../../core/base/errors.ts";
import type { ModelConfig } from "../../core/model/config.ts";

/**
 * Throws unless this many tokens fit the model's context. `what` is the subject of the message, such as
 * "`--capacity 4096`", and `hint` a value that fits.
 */
export function requireContext(
  { maxPositionEmbeddings: limit }: ModelConfig,
  tokens: number,
  what: string,
  hint: string,
): void {
  if (tokens <= limit) return;
  throw new UsageError(`${what} exceeds the model's context of ${limit} tokens`, { hints: [hint] });
}
