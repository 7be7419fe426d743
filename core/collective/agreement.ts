/**
 * Comparisons between ranks: whether all of them were given the same.
 *
 * A hash travels as a number: 48 bits of it, which f64 holds exactly.
 */
import { createHash } from "node:crypto";
import { DataError } from "../base/errors.ts";
import type { NumberGroup } from "./process_group.ts";

/** The ranks differ in what they were started with; every rank throws the same. */
export class RanksDifferError extends DataError {}

/** 48 bits of a SHA-256 as a number. */
export function hashNumber(parts: Iterable<string | Uint8Array>): number {
  const hash = createHash("sha256");
  for (const part of parts) hash.update(part);
  return hash.digest().readUIntBE(0, 6);
}

/** The values that every rank gave, as [rank][value]; all ranks give equally many. */
export async function gatherNumbers(
  ranks: NumberGroup,
  values: readonly number[],
): Promise<number[][]> {
  const { rank, world } = ranks;
  const all = new Array<number>(world * values.length).fill(0);
  values.forEach((value, i) => all[rank * values.length + i] = value);
  const summed = await ranks.sum(all);
  return Array.from(
    { length: world },
    (_, r) => summed.slice(r * values.length, (r + 1) * values.length),
  );
}

/**
 * Compares hashes with those of rank 0, by name.
 * @throws {RanksDifferError} on every rank, with the first that differs
 */
export async function requireSame(
  ranks: NumberGroup,
  hashes: Readonly<Record<string, number>>,
): Promise<void> {
  const names = Object.keys(hashes);
  const all = await gatherNumbers(ranks, Object.values(hashes));
  const differing = all.flatMap((values, rank) => {
    const at = values.findIndex((value, i) => value !== all[0]![i]);
    return at < 0 ? [] : [{ rank, name: names[at]! }];
  });
  if (differing.length === 0) return;
  const { rank, name } = differing[0]!;
  const others = differing.length > 1 ? ` (as do ${differing.length - 1} more)` : "";
  throw new RanksDifferError(`rank ${rank} differs from rank 0 in its ${name}${others}`, {
    hints: ["start all ranks with the same version, flags and files"],
  });
}
