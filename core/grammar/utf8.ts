/** Characters as the bytes of UTF-8. */
import type { Ranges } from "./expression.ts";

/** Bytes that may stand at one position of a character's encoding. */
export type ByteRange = readonly [first: number, last: number];

/** Last characters of one, two, three and four bytes. */
const LENGTHS = [0x7f, 0x7ff, 0xffff, 0x10ffff];

const known = new WeakMap<Ranges, ByteRange[][]>();

/** Sequences of byte ranges that spell the characters of a class, each in one way. */
export function byteSequences(ranges: Ranges): ByteRange[][] {
  return known.getOrInsertComputed(ranges, () => sequencesOf(ranges));
}

function sequencesOf(ranges: Ranges): ByteRange[][] {
  return ranges.flatMap(([first, last]) =>
    LENGTHS.flatMap((end, i) => {
      const from = Math.max(first, i === 0 ? 0 : LENGTHS[i - 1]! + 1), to = Math.min(last, end);
      return from > to ? [] : split(bytesOf(from), bytesOf(to));
    })
  );
}

function bytesOf(point: number): number[] {
  return [...new TextEncoder().encode(String.fromCodePoint(point))];
}

/** Sequences from one character to another of as many bytes. */
function split(from: readonly number[], to: readonly number[]): ByteRange[][] {
  const [low, high] = [from[0]!, to[0]!];
  if (from.length === 1) return [[[low, high]]];
  const [lows, highs] = [from.slice(1), to.slice(1)];
  const least = lows.map(() => 0x80), most = lows.map(() => 0xbf);
  const behind = (first: number, last: number, from: number[], to: number[]): ByteRange[][] =>
    first > last ? [] : split(from, to).map((rest) => [[first, last], ...rest]);
  if (low === high) return behind(low, low, lows, highs);
  const isWhole = lows.every((byte) => byte === 0x80);
  const isFull = highs.every((byte) => byte === 0xbf);
  return [
    ...(isWhole ? [] : behind(low, low, lows, most)),
    ...behind(isWhole ? low : low + 1, isFull ? high : high - 1, least, most),
    ...(isFull ? [] : behind(high, high, least, highs)),
  ];
}
