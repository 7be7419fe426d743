/** Batches that fit into memory, by the exact plans of their steps. */
import { attentionLayers } from "../model/config.ts";
import { stateElements } from "../model/delta_net.ts";
import type { Engine } from "./engine.ts";
import { bucketFor } from "./kv_cache.ts";
import { SCORE_CHUNK } from "./score.ts";

/** Share of the limit up to which the keys, values and logits of a batch count as small. */
const SMALL = 1 / 16;

/** Batches found, by what decides them: an exact plan takes up to a tenth of a second. */
const found = new WeakMap<Engine, Map<string, number>>();

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
  // There is no plan for small batches.
  const { config } = engine;
  const { numKeyValueHeads: heads, headDim, streams } = config;
  const layers = attentionLayers(config).length;
  const slotBytes = 2 * layers * streams * heads * headDim * 4;
  const stateBytes = streams * (config.numHiddenLayers - layers) * stateElements(config) * 4;
  const tokens = Math.min(SCORE_CHUNK, capacity);
  // Of texts every token is scored, of choices a few.
  const logitBytes = use === "score" ? tokens * engine.config.vocabSize * 4 : 0;
  if (most * (capacity * slotBytes + stateBytes + logitBytes) <= SMALL * limit) return most;
  const bytesOf = (batch: number) => {
    if (use === "score") {
      const sizes = { batch, tokens, capacity, selected: batch * tokens };
      return engine.plan(sizes, { head: "score" }).totalBytes;
    }
    const { totalBytes, sections } = engine.plan({ batch, tokens: 1, capacity, selected: batch });
    return totalBytes + sections.state; // a cache grows by a copy
  };
  const known = found.getOrInsertComputed(engine, () => new Map());
  return known.getOrInsertComputed([use, most, capacity, limit].join(), () => {
    let batch = most;
    while (batch > 1 && bytesOf(batch) > limit) batch = Math.floor(batch / 2);
    return Math.max(1, batch);
  });
}
