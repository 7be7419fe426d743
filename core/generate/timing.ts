/**
 * Times the two kinds of work a model does, on made-up tokens: a prompt, and one token after another.
 *
 * Tokens that count as cached need never have been computed, since a step takes as long whatever the
 * slots hold.
 */
import type { ForwardOptions } from "../model/forward.ts";
import type { Engine } from "./engine.ts";
import type { KvCache } from "./kv_cache.ts";
import { appendChunk, prefill } from "./prefill.ts";
import { numbersOf } from "./sequence.ts";

/** Milliseconds to prefill a prompt of `tokens` tokens for every sequence of the cache. */
export async function timePrefill(engine: Engine, cache: KvCache, tokens: number): Promise<number> {
  const began = performance.now();
  await prefill(engine, cache, madeUp(engine, cache, tokens), headOf(engine));
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
  const { samplesTokens } = engine.device.traits;
  let began = performance.now();
  let pending = samplesTokens ? await sample(engine, cache, start, true) : undefined;
  for (let step = 0; step < steps; step++) {
    // As in generating: where the device samples tokens, the next step is issued before this one is read.
    const next = samplesTokens && step + 1 < steps
      ? await sample(engine, cache, start + step + 1, false)
      : undefined;
    if (pending) pending();
    else await append(engine, cache, start + step);
    pending = next;
    const now = performance.now();
    times.push(now - began);
    began = now;
  }
  return times;
}

/** Issues a greedy step for every sequence. */
function sample(
  engine: Engine,
  cache: KvCache,
  start: number,
  first: boolean,
): Promise<() => unknown> {
  const rows = Array.from({ length: cache.batch }, (_, b) => b);
  return engine.sample(cache, {
    ...(first ? { ids: rows } : {}),
    start: rows.map(() => start),
    sampling: rows.flatMap(() => numbersOf(undefined)),
  });
}

/** Adds one token to every sequence. */
async function append(engine: Engine, cache: KvCache, start: number): Promise<void> {
  const rows = madeUp(engine, cache, 1).map((tokens) => ({ tokens, start }));
  await appendChunk(engine, cache, rows, rows.map((_, b) => ({ b, t: 0 })), headOf(engine));
}

/** Returns the head: where reading logits is a copy, the device picks the tokens. */
function headOf({ device }: Engine): ForwardOptions {
  return { head: device.traits.readbackIsCopy ? "greedy" : "logits" };
}

/** `tokens` arbitrary token ids for every sequence. */
function madeUp({ config }: Engine, { batch }: KvCache, tokens: number): number[][] {
  return Array.from(
    { length: batch },
    (_, b) => Array.from({ length: tokens }, (_, t) => (31 * t + b) % config.vocabSize),
  );
}
