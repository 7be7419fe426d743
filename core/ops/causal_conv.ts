/**
 * causal_conv: a convolution of each channel over its own last K tokens, then SiLU.
 *
 *   y[t] = silu(Σ_i w[K − 1 − i] x[t − i]),  i = 0 … K − 1
 *
 * Inputs before the first token are the K − 1 rows of `past`. In a packed row they stand before every
 * document: `first` says in which slot that of each token begins, and a token reads x back to there and
 * `past` from there on.
 *
 * Kernel: none; it is a few elementwise ops.
 */
import { formatType } from "../graph/types.ts";
import { concat, type Value } from "../graph/value.ts";
import { silu } from "./activation.ts";
import { modelOp } from "./define.ts";
import { repeatStreams } from "./repeat_streams.ts";

/** x [R, T, C], weight [C, 1, K], past [R, K − 1, C], first [B, T] i32 → [R, T, C] */
export const causalConv = modelOp()({
  name: "causal_conv",
  inputs: ["x", "weight", "past"],
  optional: ["first"],
  infer({ x, weight, past }) {
    const [R, , C] = x.shape;
    const K = weight.shape[2]!;
    const fits = weight.shape.join() === [C, 1, K].join() &&
      past.shape.join() === [R, K - 1, C].join();
    if (!fits) throw new TypeError(`cannot convolve ${formatType(x)} by ${formatType(weight)}`);
    return x;
  },
  decompose({ x, weight, past, first }) {
    const [C, , K] = weight.shape as [number, number, number];
    const taps = weight.reshape([C, K]).transpose([1, 0]);
    /** Weight of the input that lies i tokens back, [C]. */
    const tap = (i: number) => taps.slice(0, K - 1 - i, K - i).reshape([C]);
    const sum = first ? packedSum(x, past, first, tap) : plainSum(x, past, tap);
    return silu({ x: sum });
  },
  recomputes: true,
});

type Tap = (i: number) => Value;

/** Sum over the last K tokens where `past` stands before the first. */
function plainSum(x: Value, past: Value, tap: Tap): Value {
  const [T, before] = [x.shape[1]!, past.shape[1]!];
  const joined = concat([past, x], 1);
  const terms = Array.from(
    { length: before + 1 },
    (_, i) => joined.slice(1, before - i, before - i + T).mul(tap(i)),
  );
  return terms.reduce((sum, term) => sum.add(term));
}

/** The same where `past` stands before the first token of every document. */
function packedSum(x: Value, past: Value, first: Value, tap: Tap): Value {
  const [R, T, C] = x.shape as [number, number, number];
  const before = past.shape[1]!;
  const [B] = first.shape as [number];
  const zeros = x.graph.constant(0).broadcast([R, before, C]);
  const joined = concat([zeros, x], 1);
  const place = x.graph.iota(T).sub(first).reshape([B, T, 1]); // in its document
  const flag = (condition: Value) => repeatStreams(condition.select(1, 0), R / B);
  let sum = x.mul(tap(0));
  for (let i = 1; i <= before; i++) {
    const isInside = x.graph.constant(i, "i32").lessEqual(place); // [B, T, 1]
    const earlier = joined.slice(1, before - i, before - i + T);
    sum = sum.add(earlier.mul(flag(isInside)).mul(tap(i)));
  }
  // A token at place d reads past[before + d − i] for i > d.
  const starts = Array.from({ length: before }, (_, d) => {
    const terms = Array.from({ length: before - d }, (_, j) => {
      const i = d + 1 + j;
      return past.slice(1, before + d - i, before + d - i + 1).mul(tap(i));
    });
    return terms.reduce((sum, term) => sum.add(term));
  });
  const places = x.graph.iota(before);
  const isAt = places.lessEqual(place).select(place.lessEqual(places).select(1, 0), 0);
  return sum.add(repeatStreams(isAt, R / B).matmul(concat(starts, 1)));
}
