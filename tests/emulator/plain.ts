/** Attention with a prefix and limits in plain TypeScript, one query at a time. */

/** P streams, B sequences, T queries, S slots, K key heads of G heads each, M prefix slots. */
export interface AttentionSizes {
  readonly P: number;
  readonly B: number;
  readonly T: number;
  readonly S: number;
  readonly K: number;
  readonly G: number;
  readonly M: number;
  readonly D: number;
  readonly scale: number;
}

/** Layouts as in kernels/forward/attention.cu, with text of its own for every row. */
export interface AttentionInputs {
  readonly q: Float32Array; // [P·B, T, K·G, D]
  readonly keys: Float32Array; // [P·B, K, S, D]
  readonly values: Float32Array;
  readonly prefixKeys: Float32Array; // [P, K, M, D]
  readonly prefixValues: Float32Array;
  readonly first: Int32Array; // [B, T]
  readonly last: Int32Array;
}

/** The mixture [P·B, T, K·G, D], and log Σ exp(score) [P·B, T, K·G]. */
export function plainAttention(
  sizes: AttentionSizes,
  all: AttentionInputs,
): { out: number[]; normalizer: number[] } {
  const { P, B, T, S, K, G, M, D, scale } = sizes;
  const [R, H] = [P * B, K * G];
  const out: number[] = [];
  const normalizer: number[] = [];
  for (let query = 0; query < R * T * H; query++) {
    const [row, t, k] = [Math.floor(query / T / H), Math.floor(query / H) % T, query % H / G | 0];
    const at = row % B * T + t;
    const slots = [
      ...Array.from({ length: M }, (_, m) => ({ text: false, slot: m })),
      ...Array.from({ length: S }, (_, s) => ({ text: true, slot: s }))
        .filter(({ slot }) => all.first[at]! <= slot && slot <= all.last[at]!),
    ].map(({ text, slot }) => {
      const place = text ? (row * K + k) * S + slot : ((row / B | 0) * K + k) * M + slot;
      const key = (text ? all.keys : all.prefixKeys).subarray(place * D, (place + 1) * D);
      const value = (text ? all.values : all.prefixValues).subarray(place * D, (place + 1) * D);
      const score = key.reduce((sum, v, d) => sum + v * all.q[query * D + d]!, 0) * scale;
      return { value, weight: Math.exp(score) };
    });
    const total = slots.reduce((sum, { weight }) => sum + weight, 0);
    normalizer.push(Math.log(total));
    for (let d = 0; d < D; d++) {
      out.push(
        slots.reduce((sum, { weight, value }) => sum + weight * value[d]!, 0) / total,
      );
    }
  }
  return { out, normalizer };
}
