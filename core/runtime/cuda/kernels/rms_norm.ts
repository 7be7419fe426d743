/** rms_norm, alone or behind the sum of a residual stream, and its gradient. */
import backwardText from "../../../../kernels/backward/rms_norm.cu" with { type: "text" };
import forwardText from "../../../../kernels/forward/rms_norm.cu" with { type: "text" };
import { rmsNorm } from "../../../ops/rms_norm.ts";
import { addRmsNorm } from "../fuse/residuals.ts";
import { rmsNormWithStatistic } from "../fuse/statistics.ts";
import { blocks, grid, kernel, kernelFile } from "./define.ts";
import { listRule, type Rule, rule, statisticGradientRule } from "./rule.ts";
import { f32, PARTIAL_ROWS, rowsOf, sumPartials } from "./sums.ts";

export const RMS_NORM = kernelFile("forward/rms_norm.cu", forwardText);
export const RMS_NORM_BACKWARD = kernelFile("backward/rms_norm.cu", backwardText);

const byRow = ({ rows }: Record<string, number>) => grid(256, blocks(rows!, 8));

const norm = kernel(
  RMS_NORM,
  "rms_norm *y *sum *inverse *x *residual *weight rows C epsilon:f32",
  byRow,
);
const backward = kernel(
  RMS_NORM_BACKWARD,
  "rms_norm_backward *dx *dy *x *weight *inverse rows C",
  byRow,
);
const weightPartials = kernel(
  RMS_NORM_BACKWARD,
  "rms_norm_weight *partial *dy *x *inverse rows C",
  ({ rows, C }) => grid(128, blocks(C!, 128), blocks(rows!, PARTIAL_ROWS)),
);

/** With and without the statistic, which is the second output. */
const NORM_RULES = [rmsNorm.op, rmsNormWithStatistic.forward].map((op) =>
  listRule(op, (l, [x, weight], { epsilon }, [, inverse]) => {
    const [rows, C] = rowsOf(x.shape);
    return l.launch(norm, {
      reads: { x: l.operand(x), residual: undefined, weight: l.operand(weight) },
      writes: { y: l.type(x.shape), sum: undefined, inverse },
      numbers: { rows, C, epsilon },
    });
  })
);

export const RMS_NORM_RULES: readonly Rule[] = [
  ...NORM_RULES,
  rule(addRmsNorm, (l, { x, residual, weight }, { epsilon }, [y, sum, inverse]) => {
    const [rows, C] = rowsOf(x.shape);
    return l.launch(norm, {
      reads: { x: l.operand(x), residual: l.operand(residual), weight: l.operand(weight) },
      writes: { y: l.type(y.shape), sum: l.type(sum.shape), inverse },
      numbers: { rows, C, epsilon },
    });
  }),
  statisticGradientRule(rmsNorm, rmsNormWithStatistic, (l, { x, weight }, call) => {
    const [rows, C] = rowsOf(x.shape);
    const reads = { dy: l.operand(call.upstream), x: l.operand(x), inverse: l.get(call.statistic) };
    const numbers = { rows, C };
    return {
      x: () =>
        l.launch(backward, {
          reads: { ...reads, weight: l.operand(weight) },
          writes: { dx: l.type(x.shape) },
          numbers,
          reuse: "dy",
        })[0]!,
      weight() {
        const writes = { partial: f32(Math.ceil(rows / PARTIAL_ROWS), C) };
        return sumPartials(l, l.launch(weightPartials, { reads, writes, numbers })[0]!);
      },
    };
  }),
];
