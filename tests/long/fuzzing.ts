/**
 * Mutations with a fixed seed, and what must come of them: success or an error of ours, in bounded time
 * and memory.
 */
import { assert, assertEquals } from "@std/assert";
import { ParscaleError } from "../../core/base/errors.ts";
import { joinBytes } from "../../core/base/files.ts";
import { RandomStream } from "../../core/base/random.ts";

/** Longest time of a case, on a machine that is busy with other tests. */
const MAX_MS = 30_000;

/** Memory that the process may take meanwhile. */
const MAX_RSS_BYTES = 4e9;

// deno-lint-ignore no-explicit-any -- mutated documents may be anything
export type Json = any;

/** Draws that every mutation is made of. */
export class Draws {
  readonly #random: RandomStream;

  constructor(seed: number, name: string) {
    this.#random = new RandomStream(seed, name);
  }

  below(limit: number): number {
    return this.#random.integer(limit);
  }

  pick<T>(list: readonly T[]): T {
    return list[this.below(list.length)]!;
  }
}

/** Values that have broken readers of other formats. */
const NONSENSE: readonly (() => Json)[] = [
  ...[null, true, -1, 0, 1.5, 3, 2 ** 31, 2 ** 53, 1e300, -1e300, "", "64", "F32", "\0", "\x1b[2J"],
  ...["../x", "/etc/passwd", "__proto__", "constructor", "\ud800", "x".repeat(70_000), [], {}],
].map((value) => () => structuredClone(value)).concat([
  () => Array(200).fill(0).reduce((inner) => [inner], 1),
  () => ({ ["__proto__"]: 1, toString: 1 }),
]);

export const nonsense = (draws: Draws): Json => draws.pick(NONSENSE)();

/** Changes one place of a JSON document, wherever it is. */
export function mutateJson(value: Json, draws: Draws): Json {
  const isBranch = typeof value === "object" && value !== null && Object.keys(value).length > 0;
  if (!isBranch || draws.below(5) === 0) return nonsense(draws);
  const keys = Object.keys(value), key = draws.pick(keys);
  const copy = Array.isArray(value) ? [...value] : { ...value };
  switch (draws.below(12)) {
    case 0:
      delete copy[key];
      break;
    case 1:
      copy[draws.pick(keys)] = copy[key];
      break;
    case 2:
      if (Array.isArray(copy)) copy.push(nonsense(draws));
      else copy[draws.pick(["ghost", "__proto__", "type", key + key])] = copy[key];
      break;
    default:
      copy[key] = mutateJson(copy[key], draws);
  }
  return copy;
}

/** Changes bytes: flips, cuts, repeats, inserts, and numbers at the ends of their ranges. */
export function mutateBytes(bytes: Uint8Array, draws: Draws): Uint8Array<ArrayBuffer> {
  let mutated = Uint8Array.from(bytes);
  for (let changes = 1 + draws.below(4); changes > 0; changes--) {
    if (mutated.length === 0) return mutated;
    // Starts and ends hold what describes the rest.
    const near = Math.min(mutated.length, 1 + draws.below(200));
    const at = draws.pick([draws.below(mutated.length), draws.below(near), mutated.length - near]);
    switch (draws.below(7)) {
      case 0:
        mutated[at]! ^= 1 << draws.below(8);
        break;
      case 1:
        mutated[at] = draws.pick([0, 1, 0x7f, 0x80, 0xff, 0x0a, 0x22, 0x5b, 0x7b]);
        break;
      case 2:
        mutated = mutated.slice(0, at);
        break;
      case 3:
        mutated = joinBytes([mutated.subarray(0, at), mutated.subarray(at + 1 + draws.below(64))]);
        break;
      case 4: {
        const piece = mutated.subarray(at, at + 1 + draws.below(64));
        mutated = joinBytes([mutated.subarray(0, at), piece, mutated.subarray(at)]);
        break;
      }
      case 5:
        mutated.fill(draws.pick([0, 0xff]), at, at + 1 + draws.below(9));
        break;
      default:
        mutated = joinBytes([
          mutated.subarray(0, at),
          Uint8Array.from({ length: draws.below(16) }, () => draws.below(256)),
          mutated.subarray(at),
        ]);
    }
  }
  return mutated;
}

/** Puts fragments of a language together, and out of order. */
export function mutateText(text: string, fragments: readonly string[], draws: Draws): string {
  const parts = text.split(/(?=\{[%{])|(?<=[%}]\})/);
  for (let changes = 1 + draws.below(4); changes > 0; changes--) {
    const at = draws.below(parts.length + 1);
    switch (draws.below(4)) {
      case 0:
        parts.splice(at, 1);
        break;
      case 1:
        parts.splice(at, 0, draws.pick(parts.length > 0 ? parts : [""]));
        break;
      case 2: {
        const part = parts[at] ?? "", cut = draws.below(part.length + 1);
        parts[at] = part.slice(0, cut) + draws.pick(fragments) + part.slice(cut + draws.below(8));
        break;
      }
      default:
        parts.splice(at, 0, draws.pick(fragments));
    }
  }
  return parts.join("");
}

/** Part of the cases that run without `PARSCALE_LONG_TESTS=1`. */
export const FRACTION = Deno.env.get("PARSCALE_LONG_TESTS") === "1" ? 1 : 0.4;

/** Runs cases, of which some must succeed and some be refused; nothing else may happen. */
export async function fuzz(
  name: string,
  all: number,
  run: (draws: Draws, index: number) => Promise<unknown>,
): Promise<void> {
  const draws = new Draws(20261122, name);
  const wrong: string[] = [], cases = all * FRACTION;
  let refused = 0;
  for (let i = 0; i < cases && wrong.length < 5; i++) {
    const began = performance.now();
    try {
      await run(draws, i);
    } catch (error) {
      if (error instanceof ParscaleError) refused++;
      else wrong.push(`case ${i}: ${(error as Error)?.stack ?? error}`);
    }
    const ms = performance.now() - began, { rss } = Deno.memoryUsage();
    if (ms > MAX_MS) wrong.push(`case ${i} took ${ms} ms`);
    if (rss > MAX_RSS_BYTES) wrong.push(`after case ${i} the process has ${rss} bytes`);
  }
  assertEquals(wrong, [], wrong.join("\n"));
  assert(refused > 0 && refused < cases, `${refused} of ${cases} were refused`);
}
