/**
 * causal_conv: a convolution of each channel over its own last K tokens, then SiLU.
 *
 *   y[t] = silu(Σ_i w[K − 1 − i] x[t − i]),  i = 0 … K − 1
 *
 * Inputs before the first token are the K − 1 columns of `past`. In a packed row they stand before every
 * document: `first` says in which slot that of each token begins, and a token reads x back to there and
 * `past` from there on.
 *
 * The gradient computes it again: it is cheap beside the shifted copies of x that would be kept.
 *
 * Kernel: none of ours; ONNX Runtime has one of rows that are not packed.
 */
import { formatType, type TensorType } from "../graph/types.ts";
import { concat, type Value } from "../graph/value.ts";
import { silu } from "./activation.ts";
import { modelOp } from "./define.ts";
import { repeatStreams } from "./repeat_streams.ts";

const INPUTS = ["x", "weight", "past"] as const;

type Inputs<T> = Readonly<Record<typeof INPUTS[number], T>>;

/** x [R, T, C], weight [C, 1, K], past [R, C, K − 1] → [R, T, C] */
export const causalConv = modelOp()({
  name: "causal_conv",
  inputs: INPUTS,
  infer: requireFit,
  decompose({ x, weight, past }) {
    const T = x.shape[1]!, before = past.shape[2]!;
    const joined = concat([past, byChannel(x)], 2);
    const terms = Array.from(
      { length: before + 1 },
      (_, i) => joined.slice(2, before - i, before - i + T).mul(tap(weight, i)),
    );
    return silu({ x: byChannel(terms.reduce((sum, term) => sum.add(term))) });
  },
  recomputes: true,
});

/** The same for rows of several documents, all after `past`: first [B, T] i32 */
export const packedCausalConv = modelOp()({
  name: "packed_causal_conv",
  inputs: [...INPUTS, "first"],
  infer: requireFit,
  decompose({ x, weight, past, first }) {
    const [R, T, C] = x.shape as [number, number, number];
    const before = past.shape[2]!, [B] = first.shape as [number];
    const zeros = x.graph.constant(0).broadcast([R, C, before]);
    const joined = concat([zeros, byChannel(x)], 2);
    const place = x.graph.iota(T).sub(first); // in its document, [B, T]
    const flag = (condition: Value) => repeatStreams(condition.select(1, 0), R / B);
    let sum = byChannel(x).mul(tap(weight, 0));
    for (let i = 1; i <= before; i++) {
      const isInside = x.graph.constant(i, "i32").lessEqual(place.reshape([B, 1, T]));
      const earlier = joined.slice(2, before - i, before - i + T);
      sum = sum.add(earlier.mul(flag(isInside)).mul(tap(weight, i)));
    }
    // A token at place d reads past[before + d − i] for i > d.
    const starts = Array.from({ length: before }, (_, d) => {
      const terms = Array.from({ length: before - d }, (_, j) => {
        const i = d + 1 + j;
        return past.slice(2, before + d - i, before + d - i + 1).mul(tap(weight, i));
      });
      return terms.reduce((sum, term) => sum.add(term));
    });
    const places = x.graph.iota(before).reshape([before, 1]);
    const own = place.reshape([B, 1, T]);
    const isAt = places.equalFlags(own);
    const fromStart = concat(starts, 2).matmul(repeatStreams(isAt, R / B));
    return silu({ x: byChannel(sum.add(fromStart)) });
  },
  recomputes: true,
});

function requireFit({ x, weight, past }: Inputs<TensorType>): TensorType {
  const [R, , C] = x.shape;
  const K = weight.shape[2]!;
  const fits = weight.shape.join() === [C, 1, K].join() &&
    past.shape.join() === [R, C, K - 1].join();
  if (!fits) throw new TypeError(`cannot convolve ${formatType(x)} by ${formatType(weight)}`);
  return x;
}

/** Swaps tokens and channels. */
export function byChannel(x: Value): Value {
  return x.transpose([0, 2, 1]);
}

/** Weight of the input that lies i tokens back, [C, 1]. */
function tap(weight: Value, i: number): Value {
  const [C, , K] = weight.shape as [number, number, number];
  return weight.reshape([C, K]).slice(1, K - 1 - i, K - i);
}
