/**
 * attention: grouped-query attention over cached text, behind a learned prefix.
 *
 *   scores = q [prefix_k | k]ᵀ / √D + mask,  out = softmax(scores) [prefix_v | v]
 *
 * Slot s of the keys holds the token at position s, so the query at position p sees slots s ≤ p; slots
 * after it may hold anything. The prefix is seen by every query and never masked.
 *
 * Rows are stream-major (row = p·B + b) and the prefix is stored once per stream, not per row. What
 * surprises: q, k, v may have B rows instead of P·B. That is layer 0, where all streams still have
 * equal text; its scores are computed once and streams part only through their prefixes.
 *
 * Kernel: forward/attention.
 */
import type { Builder } from "../graph/builder.ts";
import {
  add,
  broadcast,
  concat,
  constant,
  iota,
  lessEqual,
  matmul,
  reshape,
  select,
  slice,
  transpose,
} from "../graph/primitives.ts";
import { formatType, type Value } from "../graph/types.ts";
import { modelOp } from "./define.ts";
import { softmax } from "./softmax.ts";

/** Learned keys and values of every stream, [P, K, M, D] each; keys are not rotated. */
export interface Prefix {
  readonly keys: Value;
  readonly values: Value;
}

/** Added to the score of a slot that a query must not see. Finite, so that no row becomes NaN. */
const HIDDEN = -1e30;

export const attentionOp = modelOp<Record<never, never>>({
  name: "attention",
  infer([q, keys, values, positions, prefixKeys]) {
    const [R, T, H, D] = q!.shape;
    const [B] = positions!.shape;
    const P = prefixKeys ? prefixKeys.shape[0]! : R! / B!;
    const fits = keys!.shape[0] === R && H! % keys!.shape[1]! === 0 && keys!.shape[3] === D &&
      values!.shape.join() === keys!.shape.join() && (R === B || R === P * B!);
    if (!fits) {
      throw new TypeError(`Cannot attend from ${formatType(q!)} to ${formatType(keys!)}`);
    }
    return [{ dtype: q!.dtype, shape: [P * B!, T!, H! * D!] }];
  },
  decompose(g, [q, keys, values, positions, prefixKeys, prefixValues]) {
    const [R, T, H, D] = q!.shape as [number, number, number, number];
    const [, K, S] = keys!.shape as [number, number, number];
    const B = positions!.shape[0]!;
    const P = prefixKeys ? prefixKeys.shape[0]! : R / B;
    const G = H / K;
    const rows = R / B; // 1 where the streams share their text, else P

    // The G query heads of one key head become G·T rows of one product: [R, K, G·T, D].
    const heads = transpose(g, reshape(g, q!, [R, T, K, G, D]), [0, 2, 3, 1, 4]);
    const queries = reshape(g, heads, [R, K, G * T, D]);
    const scaled = { transposeB: true, scale: D ** -0.5 };
    const product = matmul(g, queries, keys!, scaled);
    const masked = add(
      g,
      reshape(g, product, [rows, B, K, G, T, S]),
      causalMask(g, positions!, S),
    );
    if (!prefixKeys || !prefixValues) {
      const weights = reshape(g, softmax(g, masked), [R, K, G * T, S]);
      return [mergeHeads(g, matmul(g, weights, values!), [R, T, K, G, D])];
    }

    const M = prefixKeys.shape[2]!;
    const perStream = (x: Value) => reshape(g, x, [P, 1, K, M, D]);
    const prefixProduct = matmul(
      g,
      reshape(g, queries, [rows, B, K, G * T, D]),
      perStream(prefixKeys),
      scaled,
    );
    const scores = concat(g, [
      reshape(g, prefixProduct, [P, B, K, G, T, M]),
      rows === P ? masked : broadcast(g, masked, [P, B, K, G, T, S]),
    ], -1);
    const weights = reshape(g, softmax(g, scores), [P, B, K, G * T, M + S]);
    const context = add(
      g,
      matmul(
        g,
        slice(g, weights, -1, M, M + S),
        reshape(g, values!, [rows, B, K, S, D]),
      ),
      matmul(g, slice(g, weights, -1, 0, M), perStream(prefixValues)),
    );
    return [mergeHeads(g, context, [P * B, T, K, G, D])];
  },
});

/** 0 where the slot is visible, else `HIDDEN`: positions [B, T] → [B, 1, 1, T, S] */
function causalMask(g: Builder, positions: Value, S: number): Value {
  const [B, T] = positions.shape as [number, number];
  const visible = lessEqual(g, iota(g, S), reshape(g, positions, [B, 1, 1, T, 1]));
  return select(g, visible, constant(g, 0), constant(g, HIDDEN));
}

/** [R, K, G·T, D] → [R, T, H·D] */
function mergeHeads(
  g: Builder,
  x: Value,
  [R, T, K, G, D]: [number, number, number, number, number],
) {
  const split = transpose(g, reshape(g, x, [R, K, G, T, D]), [0, 3, 1, 2, 4]);
  return reshape(g, split, [R, T, K * G * D]);
}

/**
 * q [R, T, H, D], keys and values [R, K, S, D], positions [B, T] i32, prefix [P, K, M, D]
 * → [P·B, T, H·D]; R is P·B, or B where the streams share their text.
 */
export function attention(
  g: Builder,
  inputs: { q: Value; keys: Value; values: Value; positions: Value; prefix?: Prefix },
): Value {
  const { q, keys, values, positions, prefix } = inputs;
  const optional = prefix ? [prefix.keys, prefix.values] : [];
  return g.apply1(attentionOp, [q, keys, values, positions, ...optional], {});
}
