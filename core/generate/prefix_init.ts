/**
 * First prefixes from real text: each stream starts from the keys and values that the plain model
 * computes for a piece of text, as if that text stood just before position 0.
 *
 * Random prefixes are near zero beside real keys and take attention mass from the text, so a freshly
 * converted model is worse than its source; these are not. Keys come out of the cache rotated for
 * positions 0 … M − 1 and are turned back by M positions, to −M … −1, since prefix keys are stored
 * ready for use.
 */
import { ropeFrequencies } from "../model/rope_frequencies.ts";
import type { Engine } from "./engine.ts";

/**
 * Values of `prefix_k` and `prefix_v` of every layer, [P, K, M, D] each, by checkpoint name.
 * `segments` are P lists of M token ids; `engine` runs the plain model (one stream).
 */
export async function prefixesFromText(
  engine: Engine,
  segments: readonly (readonly number[])[],
): Promise<Map<string, Float32Array<ArrayBuffer>>> {
  const { config, device } = engine;
  const P = segments.length;
  const M = segments[0]!.length;
  using cache = engine.createCache(P, M);
  await engine.forward(cache, { ids: segments, start: segments.map(() => 0), select: [0] });

  const { numKeyValueHeads: K, headDim: D } = config;
  const { frequencies } = ropeFrequencies(config);
  const prefixes = new Map<string, Float32Array<ArrayBuffer>>();
  for (let layer = 0; layer < config.numHiddenLayers; layer++) {
    for (const [kind, name] of [["keys", "prefix_k"], ["values", "prefix_v"]] as const) {
      const stored = device.read(cache.tensors.get(`${kind}.${layer}`)!); // [P, K, S, D]
      const prefix = new Float32Array(P * K * M * D);
      for (let row = 0; row < P * K; row++) {
        const start = row * cache.capacity * D;
        prefix.set(stored.subarray(start, start + M * D), row * M * D);
      }
      if (kind === "keys") turn(prefix, -M, frequencies);
      prefixes.set(`model.layers.${layer}.self_attn.${name}`, prefix);
    }
  }
  return prefixes;
}

/** Rotates vectors of length D by a number of positions, in place; pairs are (i, i + D/2). */
function turn(vectors: Float32Array, positions: number, frequencies: readonly number[]): void {
  const D = 2 * frequencies.length;
  for (let i = 0; i < D / 2; i++) {
    const angle = positions * frequencies[i]!;
    const [cos, sin] = [Math.cos(angle), Math.sin(angle)];
    for (let low = i; low < vectors.length; low += D) {
      const high = low + D / 2;
      const [a, b] = [vectors[low]!, vectors[high]!];
      vectors[low] = a * cos - b * sin;
      vectors[high] = b * cos + a * sin;
    }
  }
}
