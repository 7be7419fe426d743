/** The ParScale ops: streams repeated, and their weighted sum with its gradient. */
import backwardText from "../../../../kernels/backward/aggregate.cu" with { type: "text" };
import forwardText from "../../../../kernels/forward/aggregate.cu" with { type: "text" };
import { elementCount } from "../../../graph/types.ts";
import { mixStreams } from "../../../ops/aggregate.ts";
import { repeat } from "../../../ops/repeat_streams.ts";
import { each, grid, kernel, kernelFile, packStep } from "./define.ts";
import { f32 } from "./reduce.ts";
import { gradientRule, type Rule, rule } from "./rule.ts";

export const AGGREGATE = kernelFile("forward/aggregate.cu", forwardText);
export const AGGREGATE_BACKWARD = kernelFile("backward/aggregate.cu", backwardText);

const mix = kernel(
  AGGREGATE,
  "mix_streams",
  (sizes) => each(sizes.N! * sizes.C!, packStep(sizes, sizes.C!)),
);
const mixBackward = kernel(AGGREGATE_BACKWARD, "mix_streams_backward", ({ N }) => grid(128, N!));

export const AGGREGATE_RULES: readonly Rule[] = [
  rule(repeat, (l, inputs, { streams }, [y]) => {
    const x = l.get(inputs.x), shape = [streams, elementCount(x.shape)];
    return [l.view(l.copy(x, { shape, from: { strides: [0, 1] } }), y.shape)];
  }),
  rule(mixStreams, (l, { x, weights }, _, [y]) => {
    const [P, N, C] = x.shape as [number, number, number];
    return l.launch(mix, {
      reads: { x: l.operand(x), weights: l.f32(weights) },
      writes: { y: l.type(y.shape) },
      scalars: { P, N, C },
    });
  }),
  gradientRule(mixStreams, (l, { x, weights }, { upstream }) => {
    const [P, N, C] = x.shape as [number, number, number];
    const [dx, dweights] = l.launch(mixBackward, {
      reads: { dy: l.operand(upstream), x: l.operand(x), weights: l.f32(weights) },
      writes: { dx: l.type(x.shape), dweights: f32(N, P) },
      scalars: { P, N, C },
    });
    return { x: dx, weights: dweights };
  }),
];
