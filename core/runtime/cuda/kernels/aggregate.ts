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

export const AGGREGATE = kernelFile("forward/aggregate.cu", forwardText);
export const AGGREGATE_BACKWARD = kernelFile("backward/aggregate.cu", backwardText);

const weigh = kernel(AGGREGATE, "stream_weights", ({ N }) => each(N!, 1, 128));
const mix = kernel(
  AGGREGATE,
  "mix_streams",
  (sizes) => each(sizes.N! * sizes.C!, packStep(sizes, sizes.C!)),
);
const mixBackward = kernel(AGGREGATE_BACKWARD, "mix_streams_backward", ({ N }) => grid(128, N!));
const weighBackward = kernel(
  AGGREGATE_BACKWARD,
  "stream_weights_backward",
  ({ N }) => each(N!, 1, 128),
);

/** The softmax of few scores a row, smoothed. */
function weighed(l: Lowering, scores: Value, smoothing: number): Value {
  const x = l.get(scores);
  const [N, P] = rowsOf(x.shape);
  return l.launch(weigh, {
    reads: { scores: x },
    writes: { weights: f32(...x.shape) },
    scalars: { N, P, smoothing },
    defines: { BF16: Number(x.dtype === "bf16") },
  })[0]!;
}

/** Gradient of scores by that of the weights. */
function scoresGradient(l: Lowering, output: Value, upstream: Value, smoothing: number): Value {
  const weights = l.f32(output);
  const [N, P] = rowsOf(weights.shape);
  return l.launch(weighBackward, {
    reads: { dweights: l.f32(upstream), weights },
    writes: { dscores: weights },
    scalars: { N, P, smoothing },
  })[0]!;
}

export const AGGREGATE_RULES: readonly Rule[] = [
  rule(repeat, (l, inputs, { streams }, [y]) => {
    const x = l.get(inputs.x), shape = [streams, elementCount(x.shape)];
    return [l.view(l.copy(x, { shape, from: { strides: [0, 1] } }), y.shape)];
  }),
  gradientRule(repeat, (l, { x }, { upstream, attributes: { streams } }) => ({
    x: () => sumRows(l, l.operand(upstream), streams, x.shape),
  })),
  rule(softmax, (l, { x }) => [weighed(l, x, 0)]),
  gradientRule(softmax, (l, _, { output, upstream }) => ({
    x: () => scoresGradient(l, output, upstream, 0),
  })),
  rule(streamWeights, (l, { scores }, { smoothing }) => [weighed(l, scores, smoothing)]),
  gradientRule(streamWeights, (l, _, { output, upstream, attributes: { smoothing } }) => ({
    scores: () => scoresGradient(l, output, upstream, smoothing),
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
