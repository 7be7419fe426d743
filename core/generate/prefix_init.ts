/**
 * First prefixes from real text: each stream starts from the keys and values that the plain model
 * computes for a piece of text, as if that text stood just before position 0, and from the states after
 * it where layers have any.
 *
 * Random prefixes are near zero beside real keys and take attention mass from the text, so a freshly
 * converted model is worse than its source; these are not. Keys come out of the cache rotated for
 * positions 0 … M − 1 and are turned back by M positions, to −M … −1, since prefix keys are stored
 * ready for use.
 */
import type { StateKind } from "../model/block_context.ts";
import { isDeltaNet } from "../model/config.ts";
import { ropeFrequencies } from "../model/rope_frequencies.ts";
import type { Engine } from "./engine.ts";
import type { KvCache } from "./kv_cache.ts";

/**
 * Values of `prefix_k` and `prefix_v` of every layer, [P, K, M, D] each, or of `prefix_conv` and
 * `prefix_state`, by checkpoint name. `segments` are P lists of M token ids; `engine` runs the plain model
 * (one stream).
 */
export async function prefixesFromText(
  engine: Engine,
  segments: readonly (readonly number[])[],
): Promise<Map<string, Float32Array<ArrayBuffer>>> {
  const { config } = engine;
  const M = segments[0]!.length;
  using cache = engine.createCache(segments.length, M);
  const input = { ids: segments, start: segments.map(() => 0), select: [0] };
  await engine.forward(cache, input, { head: "none" });
  const layers = Array.from({ length: config.numHiddenLayers }, (_, layer) => layer);
  return new Map(
    layers.flatMap((layer) =>
      isDeltaNet(config, layer)
        ? statesOf(engine, cache, layer)
        : (["keys", "values"] as const).map((kind) => prefixOf(engine, cache, kind, layer, M))
    ),
  );
}

type Named = [name: string, values: Float32Array<ArrayBuffer>];

/** The first M keys or values of a layer, keys turned back by M positions. */
function prefixOf(
  { config, device }: Engine,
  cache: KvCache,
  kind: "keys" | "values",
  layer: number,
  M: number,
): Named {
  const { numKeyValueHeads: K, headDim: D } = config;
  const stored = device.read(cache.tensors.get(`${kind}.${layer}`)!); // [P, K, S, D]
  const rows = cache.batch * K;
  const prefix = new Float32Array(rows * M * D);
  for (let row = 0; row < rows; row++) {
    const start = row * cache.capacity * D;
    prefix.set(stored.subarray(start, start + M * D), row * M * D);
  }
  if (kind === "keys") turn(prefix, D, -M, ropeFrequencies(config).frequencies);
  return [`model.layers.${layer}.self_attn.prefix_${kind[0]}`, prefix];
}

/** The states of a delta net. */
function statesOf({ device }: Engine, cache: KvCache, layer: number): Named[] {
  const values = (kind: StateKind) =>
    Float32Array.from(device.read(cache.tensors.get(`${kind}.${layer}`)!));
  const at = `model.layers.${layer}.linear_attn`;
  return [[`${at}.prefix_conv`, values("conv")], [`${at}.prefix_state`, values("delta")]];
}

/** Rotates the first elements of vectors of length D, in place; pairs are (i, i + half of those). */
function turn(
  vectors: Float32Array,
  D: number,
  positions: number,
  frequencies: readonly number[],
): void {
  const half = frequencies.length;
  for (let i = 0; i < half; i++) {
    const angle = positions * frequencies[i]!;
    const [cos, sin] = [Math.cos(angle), Math.sin(angle)];
    for (let low = i; low < vectors.length; low += D) {
      const high = low + half;
      const [a, b] = [vectors[low]!, vectors[high]!];
      vectors[low] = a * cos - b * sin;
      vectors[high] = b * cos + a * sin;
    }
  }
}
