/** Memory that serving needs at most, from the exact plans of its steps. */
import type { Engine } from "../generate/engine.ts";
import { bucketFor } from "../generate/kv_cache.ts";
import { GROUP_SLOTS } from "../generate/prefill_group.ts";
import { PREFILL_GROUPS } from "../generate/scheduler.ts";

/** Sizes of what is served at once. */
export interface ServingSizes {
  readonly maxBatch: number;
  readonly maxLength: number;
  /** Of all models together. */
  readonly prefixCacheBytes: number;
}

/**
 * Bytes that engines on one backbone need at most: weights once, the KV cache of every engine at full
 * batch and length, twice since it grows by a copy, those of two prefill groups, and the largest step.
 */
export function servingBytes(engines: readonly Engine[], sizes: ServingSizes): number {
  const { maxBatch: batch, maxLength, prefixCacheBytes } = sizes;
  let weights = 0, kvCache = 0, steps = 0;
  for (const engine of engines) {
    const { device } = engine;
    const capacity = bucketFor(device, maxLength);
    const decode = engine.plan({ batch, tokens: 1, capacity, selected: batch });
    const tokens = Math.min(device.traits.prefillChunk, capacity);
    const prefill = engine.plan({ batch: 1, tokens, capacity, selected: 1 });
    // A group of several prompts may have more slots than one prompt of full length.
    const slots = Math.max(1, GROUP_SLOTS / capacity);
    weights = Math.max(weights, decode.sections.parameters);
    kvCache += 2 * decode.sections.state + PREFILL_GROUPS * slots * prefill.sections.state;
    for (const { totalBytes, sections } of [decode, prefill]) {
      steps = Math.max(steps, totalBytes - sections.parameters - sections.state);
    }
  }
  return weights + kvCache + prefixCacheBytes + steps;
}

/** The largest batch or length below that of `sizes` that stays within a limit; 0 when there is none. */
export function largestFitting(
  name: "maxBatch" | "maxLength",
  engines: readonly Engine[],
  sizes: ServingSizes,
  limit: number,
): number {
  let [fits, fails] = [0, sizes[name]];
  while (fails - fits > 1) {
    const middle = Math.floor((fits + fails) / 2);
    if (servingBytes(engines, { ...sizes, [name]: middle }) <= limit) fits = middle;
    else fails = middle;
  }
  return fits;
}
