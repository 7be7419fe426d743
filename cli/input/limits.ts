/** Checks of what a user asks for against the model's context and the machine's memory. */
import { EnvironmentError, UsageError } from "../../core/base/errors.ts";
import { memoryInfo } from "../../core/base/platform/mod.ts";
import type { ModelConfig } from "../../core/model/config.ts";
import type { Device } from "../../core/runtime/mod.ts";
import { bytesText } from "../output/units.ts";

/**
 * Throws unless this many tokens fit the model's context. `what` is the subject of the message, such as
 * "`--capacity 4096`", and a hint tells a value that fits.
 */
export function requireContext(
  { maxPositionEmbeddings: limit }: ModelConfig,
  tokens: number,
  what: string,
  ...hints: string[]
): void {
  if (tokens <= limit) return;
  throw new UsageError(`${what} exceeds the model's context of ${limit} tokens`, { hints });
}

/**
 * Bytes that a command plans with: the limit, or where none is given four fifths of the free memory. A device
 * with memory of its own has no limit then.
 */
export function memoryBudget(limit: number | undefined, { traits }: Device): number {
  return limit ?? (traits.discreteMemory ? Infinity : 0.8 * memoryInfo().available);
}

/** Throws unless `bytes` bytes are free; `what` is the subject of the message: "this shape". */
export function requireFreeMemory(bytes: number, what: string, hint: string): void {
  const { available } = memoryInfo();
  if (bytes <= available) return;
  const [needed, free] = [bytesText(bytes), bytesText(available)];
  throw new EnvironmentError(`${what} needs ${needed} of memory; ${free} are free`, {
    hints: [hint],
  });
}
