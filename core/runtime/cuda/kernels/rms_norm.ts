/** rms_norm, alone or behind the sum of a residual stream, and its gradient. */
import backwardText from "../../../../kernels/backward/rms_norm.cu" with { type: "text" };
import forwardText from "../../../../kernels/forward/rms_norm.cu" with { type: "text" };
import { rmsNorm } from "../../../ops/rms_norm.ts";
import { addRmsNorm } from "../fuse/residuals.ts";
import { blocks, grid, kernel, kernelFile } from "./define.ts";
import { gradientRule, once, type Rule, rule } from "./rule.ts";
import { f32, PARTIAL_ROWS, rowsOf, sumPartials } from "./sums.ts";

export const RMS_NORM = kernelFile("forward/rms_norm.cu", forwardText);
export const RMS_NORM_BACKWARD = kernelFile("backward/rms_norm.cu", backwardText);

const byRow = ({ rows }: Record<string, number>) => grid(256, blocks(rows!, 8));

const norm = kernel(
  RMS_NORM,
  "rms_norm *y *sum *x *residual *weight rows C epsilon:f32",
  byRow,
);
const backward = kernel(
  RMS_NORM_BACKWARD,
  "rms_norm_backward *dx *inverse *dy *x *weight rows C epsilon:f32",
  byRow,
);
const weightPartials = kernel(
  RMS_NORM_BACKWARD,
  "rms_norm_weight *partial *dy *x *inverse rows C",
  ({ rows, C }) => grid(128, blocks(C!, 128), blocks(rows!, PARTIAL_ROWS)),
);

export const RMS_NORM_RULES: readonly Rule[] = [
  rule(rmsNorm, (l, { x, weight }, { epsilon }) => {
    const [rows, C] = rowsOf(x.shape);
    return l.launch(norm, {
      reads: { x: l.operand(x), residual: undefined, weight: l.operand(weight) },
      writes: { y: l.type(x.shape), sum: undefined },
      scalars: { rows, C, epsilon },
    });
  }),
  rule(addRmsNorm, (l, { x, residual, weight }, { epsilon }) => {
    const [rows, C] = rowsOf(x.shape);
    return l.launch(norm, {
      reads: { x: l.operand(x), residual: l.operand(residual), weight: l.operand(weight) },
      writes: { y: l.type(x.shape), sum: l.type(x.shape) },
      scalars: { rows, C, epsilon },
    });
  }),
  gradientRule(rmsNorm, (l, { x, weight }, { upstream, attributes: { epsilon } }) => {
    const [rows, C] = rowsOf(x.shape);
    const reads = { dy: l.operand(upstream), x: l.operand(x) };
    const both = once(() =>
      l.launch(backward, {
        reads: { ...reads, weight: l.operand(weight) },
        writes: { dx: l.type(x.shape), inverse: f32(rows) },
        scalars: { rows, C, epsilon },
        reuse: "dy",
      })
    );
    return {
      x: () => both()[0]!,
      weight() {
        const [partial] = l.launch(weightPartials, {
          reads: { ...reads, inverse: both()[1]! },
          writes: { partial: f32(Math.ceil(rows / PARTIAL_ROWS), C) },
          scalars: { rows, C },
        });
        return sumPartials(l, partial!);
      },
    };
  }),
];
