/** Batches that fit into memory, by the exact plans of their steps. */
import type { Engine } from "./engine.ts";
import { bucketFor } from "./kv_cache.ts";
import { SCORE_CHUNK } from "./score.ts";

/** Share of the limit up to which the keys, values and logits of a batch count as small. */
const SMALL = 1 / 16;

/**
 * The largest batch up to `most` whose plan stays within `limit` bytes, weights included, for sequences of
 * up to `slots` tokens; at least 1. Candidates are `most` halved again and again.
 */
export function largestBatch(
  engine: Engine,
  { use, most, slots, limit }: {
    readonly use: "score" | "generate";
    readonly most: number;
    readonly slots: number;
    readonly limit: number;
  },
): number {
  const capacity = bucketFor(engine.device, slots);
  // An exact plan takes up to a tenth of a second, so there is none for small batches.
  const { numHiddenLayers: layers, numKeyValueHeads: heads, headDim, streams } = engine.config;
  const slotBytes = 2 * layers * streams * heads * headDim * 4;
  const tokens = Math.min(SCORE_CHUNK, slots);
  // Of texts every token is scored, of choices a few.
  const logitBytes = use === "score" ? tokens * engine.config.vocabSize * 4 : 0;
  if (most * (capacity * slotBytes + logitBytes) <= SMALL * limit) return most;
  const bytesOf = (batch: number) => {
    if (use === "score") {
      const sizes = { batch, tokens, capacity, selected: batch * tokens };
      return engine.plan(sizes, { head: "score" }).totalBytes;
    }
    const { totalBytes, sections } = engine.plan({ batch, tokens: 1, capacity, selected: batch });
    return totalBytes + sections.state; // a cache grows by a copy
  };
  for (let batch = most; batch > 1; batch = Math.floor(batch / 2)) {
    if (bytesOf(batch) <= limit) return batch;
  }
  return 1;
}
