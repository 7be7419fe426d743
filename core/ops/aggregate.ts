/**
 * stream_weights: w = softmax(s) (1 − ε) + ε / P, the share of each stream at one position.
 * mix_streams: Σ_p w[p] x[p].
 *
 * The ParScale paper's dynamic weighted sum; ε keeps a stream from dying early in training.
 *
 * Kernel: forward/aggregate.
 */
import type { Builder } from "../graph/builder.ts";
import { add, constant, matmul, mul, reshape, transpose } from "../graph/primitives.ts";
import { formatType, type Value } from "../graph/types.ts";
import { modelOp } from "./define.ts";
import { softmax } from "./softmax.ts";

export const streamWeightsOp = modelOp<{ smoothing: number }>({
  name: "stream_weights",
  infer: ([scores]) => [scores!],
  decompose(g, [scores], { smoothing }) {
    const weights = softmax(g, scores!);
    if (smoothing === 0) return [weights];
    const kept = mul(g, weights, constant(g, 1 - smoothing));
    return [add(g, kept, constant(g, smoothing / scores!.shape.at(-1)!))];
  },
});

export const mixStreamsOp = modelOp<Record<never, never>>({
  name: "mix_streams",
  infer([x, weights]) {
    const [P, N, C] = x!.shape;
    if (weights!.shape.join() !== [N, P].join()) {
      throw new TypeError(`Cannot mix ${formatType(x!)} by ${formatType(weights!)}`);
    }
    return [{ dtype: x!.dtype, shape: [N!, C!] }];
  },
  decompose(g, [x, weights]) {
    const [P, N, C] = x!.shape as [number, number, number];
    const row = reshape(g, weights!, [N, 1, P]);
    return [reshape(g, matmul(g, row, transpose(g, x!, [1, 0, 2])), [N, C])];
  },
});

/** scores [N, P] → [N, P], rows summing to 1 */
export function streamWeights(g: Builder, scores: Value, smoothing: number): Value {
  return g.apply1(streamWeightsOp, [scores], { smoothing });
}

/** x [P, N, C], weights [N, P] → [N, C] */
export function mixStreams(g: Builder, x: Value, weights: Value): Value {
  return g.apply1(mixStreamsOp, [x, weights], {});
}
