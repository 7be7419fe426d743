/** The ParScale ops: streams repeated, weighted and added up; and their gradients. */
import backwardText from "../../../../kernels/backward/aggregate.cu" with { type: "text" };
import forwardText from "../../../../kernels/forward/aggregate.cu" with { type: "text" };
import { elementCount } from "../../../graph/types.ts";
import type { Value } from "../../../graph/value.ts";
import { mixStreams, streamWeights } from "../../../ops/aggregate.ts";
import { repeat } from "../../../ops/repeat_streams.ts";
import { softmax } from "../../../ops/softmax.ts";
import type { Lowering } from "../lowering.ts";
import { each, grid, kernel, kernelFile, packStep } from "./define.ts";
import { f32, rowsOf, sumRows } from "./reduce.ts";
import { gradientRule, once, type Rule, rule } from "./rule.ts";
import { toDense } from "./strided.ts";

export const AGGREGATE = kernelFile("forward/aggregate.cu", forwardText);
export const AGGREGATE_BACKWARD = kernelFile("backward/aggregate.cu", backwardText);

const weigh = kernel(
  AGGREGATE,
  "stream_weights *weights *scores N P smoothing:f32",
  ({ N }) => each(N!, 1, 128),
);
const mix = kernel(
  AGGREGATE,
  "mix_streams *y *x *weights P N C",
  (sizes) => each(sizes.N! * sizes.C!, packStep(sizes, sizes.C!)),
);
const mixBackward = kernel(
  AGGREGATE_BACKWARD,
  "mix_streams_backward *dx *dweights *dy *x *weights P N C",
  ({ N }) => grid(128, N!),
);
const weighBackward = kernel(
  AGGREGATE_BACKWARD,
  "stream_weights_backward *dscores *dweights *weights N P smoothing:f32",
  ({ N }) => each(N!, 1, 128),
);

/** Gradient of scores by those of the weights, which are f32 like the sums they come from. */
function scoresGradient(
  l: Lowering,
  { weights, upstream }: { readonly weights: Value; readonly upstream: Value },
  { smoothing, cast }: { readonly smoothing: number; readonly cast: boolean },
): Value {
  const [N, P] = rowsOf(weights.shape);
  return l.launch(weighBackward, {
    reads: { dweights: l.f32(upstream), weights: l.f32(weights) },
    writes: { dscores: cast ? l.type(weights.shape) : f32(...weights.shape) },
    scalars: { N, P, smoothing },
    ...(cast ? {} : { defines: { BF16: 0 } }),
  })[0]!;
}

export const AGGREGATE_RULES: readonly Rule[] = [
  rule(repeat, (l, inputs, { streams }, [y]) => {
    const x = l.get(inputs.x);
    const shape = [streams, elementCount(x.shape)];
    return [l.copy(x, { dtype: x.dtype, shape: y.shape }, toDense(shape, [0, 1]))];
  }),
  gradientRule(repeat, (l, { x }, { upstream, attributes: { streams } }) => ({
    x: () => sumRows(l, l.operand(upstream), streams, x.shape),
  })),
  // Few scores a row: the weights of streams without smoothing.
  rule(softmax, (l, { x }) => {
    const [N, P] = rowsOf(x.shape);
    return l.launch(weigh, {
      reads: { scores: l.f32(x) },
      writes: { weights: x },
      scalars: { N, P, smoothing: 0 },
      defines: { BF16: 0 },
    });
  }),
  gradientRule(softmax, (l, _, { output: weights, upstream }) => ({
    x: () => scoresGradient(l, { weights, upstream }, { smoothing: 0, cast: false }),
  })),
  rule(streamWeights, (l, { scores }, { smoothing }, [weights]) => {
    const [N, P] = rowsOf(scores.shape);
    return l.launch(weigh, {
      reads: { scores: l.operand(scores) },
      writes: { weights },
      scalars: { N, P, smoothing },
    });
  }),
  gradientRule(streamWeights, (l, _, { output: weights, upstream, attributes: { smoothing } }) => ({
    scores: () => scoresGradient(l, { weights, upstream }, { smoothing, cast: true }),
  })),
  rule(mixStreams, (l, { x, weights }, _, [y]) => {
    const [P, N, C] = x.shape as [number, number, number];
    return l.launch(mix, {
      reads: { x: l.operand(x), weights: l.f32(weights) },
      writes: { y: l.type(y.shape) },
      scalars: { P, N, C },
    });
  }),
  gradientRule(mixStreams, (l, { x, weights }, { upstream }) => {
    const both = once(() => {
      const [P, N, C] = x.shape as [number, number, number];
      return l.launch(mixBackward, {
        reads: { dy: l.operand(upstream), x: l.operand(x), weights: l.f32(weights) },
        writes: { dx: l.type(x.shape), dweights: f32(N, P) },
        scalars: { P, N, C },
      });
    });
    return { x: () => both()[0]!, weights: () => both()[1]! };
  }),
];
