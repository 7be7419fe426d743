/** How many sequences fit side by side into memory. */
import type { Engine } from "./engine.ts";
import { bucketFor } from "./kv_cache.ts";
import { SCORE_CHUNK } from "./score.ts";

/**
 * The largest batch up to `most` whose exact plan stays within `limit` bytes, for sequences of up to
 * `slots` tokens; at least 1. Candidates are `most` halved again and again.
 */
export function largestBatch(engine: Engine, most: number, slots: number, limit: number): number {
  const capacity = bucketFor(engine.device, slots);
  for (let batch = most; batch > 1; batch = Math.floor(batch / 2)) {
    const tokens = Math.min(SCORE_CHUNK, slots);
    const sizes = { batch, tokens, capacity, selected: 32 };
    if (engine.plan(sizes, { head: "score" }).totalBytes <= limit) return batch;
  }
  return 1;
}
