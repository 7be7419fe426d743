/**
 * stream_weights: w = softmax(s) (1 − ε) + ε / P, the share of each stream at one position.
 * mix_streams: Σ_p w[p] x[p].
 *
 * The ParScale paper's dynamic weighted sum; ε keeps a stream from dying early in training.
 *
 * Kernel: forward/aggregate for mix_streams; stream_weights is expanded.
 */
import { formatType } from "../graph/types.ts";
import { modelOp } from "./define.ts";
import { softmax } from "./softmax.ts";

/** scores [N, P] → [N, P], rows summing to 1 */
export const streamWeights = modelOp<{ smoothing: number }>()({
  name: "stream_weights",
  inputs: ["scores"],
  infer: ({ scores }) => scores,
  decompose({ scores }, { smoothing }) {
    const weights = softmax({ x: scores });
    return smoothing === 0
      ? weights
      : weights.mul(1 - smoothing).add(smoothing / scores.shape.at(-1)!);
  },
});

/** x [P, N, C], weights [N, P] → [N, C] */
export const mixStreams = modelOp()({
  name: "mix_streams",
  inputs: ["x", "weights"],
  infer({ x, weights }) {
    const [P, N, C] = x.shape;
    if (weights.shape.join() !== [N, P].join()) {
      throw new TypeError(`cannot mix ${formatType(x)} by ${formatType(weights)}`);
    }
    return { dtype: x.dtype, shape: [N!, C!] };
  },
  decompose({ x, weights }) {
    const [P, N, C] = x.shape as [number, number, number];
    return weights.reshape([N, 1, P]).matmul(x.transpose([1, 0, 2])).reshape([N, C]);
  },
});
