/** Prefix cache: which row is found, and what is forgotten. */
import { assertEquals } from "@std/assert";
import { RandomStream } from "../../../core/base/random.ts";
import type { KvCache } from "../../../core/generate/kv_cache.ts";
import { commonLength, LEAST_SHARED, PrefixCache } from "../../../core/generate/prefix_cache.ts";

/** A cache of some bytes that says when it is disposed of. */
function cacheOf(bytes: number, disposed: KvCache[] = []): KvCache {
  const dispose = (): void => void disposed.push(cache);
  const cache = { bytes, copyFrom() {}, [Symbol.dispose]: dispose } as unknown as KvCache;
  return cache;
}

Deno.test("the longest shared prefix of 1000 random prompts is that of a search through all rows", () => {
  const random = new RandomStream(1);
  const draw = () =>
    Array.from({ length: 1 + Math.floor(80 * random.uniform()) }, () => random.uniform() < 0.02);
  using prefixes = new PrefixCache(20);
  const known: number[][] = [];
  for (let i = 0; i < 1000; i++) {
    const tokens = draw().map(Number);
    const longest = Math.max(0, ...known.map((own) => commonLength(own, tokens)));
    const shared = Math.min(longest, tokens.length - 1);
    assertEquals(prefixes.sharedLength(tokens), shared >= LEAST_SHARED ? shared : 0);
    if (i % 5 > 0 || known.length >= 20) continue;
    const rows = [tokens, draw().map(Number)];
    prefixes.add(cacheOf(1), rows);
    known.push(...rows);
  }
});

Deno.test("entries not used for longest go first, the newest stays, and an answer replaces its prompt", () => {
  const disposed: KvCache[] = [];
  const [a, b, c] = [cacheOf(4, disposed), cacheOf(4, disposed), cacheOf(4, disposed)] as const;
  const rowOf = (token: number, length = 40) => new Array<number>(length).fill(token);
  const prefixes = new PrefixCache(8);
  prefixes.add(a, [rowOf(1), rowOf(1)]);
  prefixes.add(b, [rowOf(2)]);
  assertEquals(prefixes.copyInto(cacheOf(4), 0, rowOf(1)), 39);
  prefixes.add(c, [rowOf(3)]);
  assertEquals(disposed, [b]);
  assertEquals([1, 2, 3].map((token) => prefixes.sharedLength(rowOf(token))), [39, 0, 39]);
  const answer = cacheOf(20, disposed);
  prefixes.add(answer, [rowOf(3, 50)]);
  assertEquals(disposed, [b, c, a]);
  assertEquals([1, 3].map((token) => prefixes.sharedLength(rowOf(token, 60))), [0, 50]);
  prefixes[Symbol.dispose]();
  assertEquals([disposed.at(-1), prefixes.bytes], [answer, 0]);
});
