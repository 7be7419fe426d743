/**
 * Times the two kinds of work a model does, on made-up tokens: a prompt, and one token after another.
 *
 * Comes in: an engine and a cache with room. Goes out: milliseconds, by the wall. What surprises:
 * tokens that count as cached need never have been computed, since a step takes as long whatever the
 * slots hold.
 */
import type { Engine } from "./engine.ts";
import type { KvCache } from "./kv_cache.ts";
import { chunkOf } from "./prefill.ts";

/** Milliseconds to take in a prompt of so many tokens for every sequence of the cache. */
export async function timePrefill(
  engine: Engine,
  cache: KvCache,
  tokens: number,
): Promise<number> {
  const chunk = chunkOf(engine.device);
  const began = performance.now();
  for (let start = 0; start < tokens; start += chunk) {
    await append(engine, cache, start, Math.min(chunk, tokens - start));
  }
  return performance.now() - began;
}

/** Milliseconds of each of some steps, which add a token to every sequence, from slot `start` on. */
export async function timeDecode(
  engine: Engine,
  cache: KvCache,
  start: number,
  steps: number,
): Promise<number[]> {
  const times: number[] = [];
  for (let step = 0; step < steps; step++) {
    const began = performance.now();
    await append(engine, cache, start + step, 1);
    times.push(performance.now() - began);
  }
  return times;
}

/** Where reading logits is a copy, the device picks the tokens, as it does for greedy decoding. */
async function append(
  engine: Engine,
  cache: KvCache,
  start: number,
  tokens: number,
): Promise<void> {
  const rows = Array.from({ length: cache.batch }, (_, b) => b);
  const { vocabSize } = engine.config;
  await engine.forward(cache, {
    ids: rows.map((b) =>
      Array.from({ length: tokens }, (_, t) => (start + 31 * t + b) % vocabSize)
    ),
    start: rows.map(() => start),
    select: rows.map((b) => b * tokens + tokens - 1),
  }, { head: engine.device.isDistant ? "greedy" : "logits" });
}
