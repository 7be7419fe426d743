/** `--shard`: the part of the rows that a process computes. */
import { UsageError } from "../../core/base/errors.ts";

/** Part `part` of `of`, counted from 1. */
export interface Shard {
  readonly part: number;
  readonly of: number;
}

/** Reads the value of `--shard`. */
export function parseShard(text: string | undefined): Shard | undefined {
  if (text === undefined) return undefined;
  const [, part, of] = (/^(\d+)\/(\d+)$/.exec(text) ?? []).map(Number);
  if (part !== undefined && of !== undefined && part >= 1 && part <= of) return { part, of };
  throw new UsageError(`invalid value "${text}" for \`--shard\`: must be I/N with I from 1 to N`, {
    hints: ["the second of four parts is --shard 2/4"],
  });
}

/** Returns whether a unit of work, counted from 0, belongs to a part; all does where there are none. */
export function isOfShard(shard: Shard | undefined, index: number): boolean {
  return shard === undefined || index % shard.of === shard.part - 1;
}

/** Parts read the same input, which stdin cannot be. */
export function requireFileForShard(shard: Shard | undefined, path: string | undefined): void {
  if (shard === undefined || path !== undefined && path !== "-") return;
  throw new UsageError("`--shard` needs FILE: every part reads all of the input");
}
