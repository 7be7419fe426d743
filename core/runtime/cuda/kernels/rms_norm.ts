/** rms_norm, alone or behind the sum of a residual stream, and its gradient. */
import backwardText from "../../../../kernels/backward/rms_norm.cu" with { type: "text" };
import forwardText from "../../../../kernels/forward/rms_norm.cu" with { type: "text" };
import type { Value } from "../../../graph/value.ts";
import { rmsNorm } from "../../../ops/rms_norm.ts";
import { addRmsNorm } from "../fuse/residuals.ts";
import type { Lowering } from "../lowering.ts";
import { blocks, grid, kernel, kernelFile } from "./define.ts";
import { f32, rowsOf, sumRows } from "./reduce.ts";
import { gradientRule, once, type Rule, rule } from "./rule.ts";

export const RMS_NORM = kernelFile("forward/rms_norm.cu", forwardText);
export const RMS_NORM_BACKWARD = kernelFile("backward/rms_norm.cu", backwardText);

/** Rows of which one block of `rms_norm_weight` makes a partial sum. */
const PARTIAL_ROWS = 64;

const byRow = ({ rows }: Record<string, number>) => grid(256, blocks(rows!, 8));

const norm = kernel(RMS_NORM, "rms_norm", byRow);
const backward = kernel(RMS_NORM_BACKWARD, "rms_norm_backward", byRow);
const weightPartials = kernel(
  RMS_NORM_BACKWARD,
  "rms_norm_weight",
  ({ rows, C }) => grid(128, blocks(C!, 128), blocks(rows!, PARTIAL_ROWS)),
);

/** The norm of x or of its sum with the residual stream, and that sum. */
function normed(
  l: Lowering,
  { x, residual, weight }: { readonly x: Value; readonly residual?: Value; readonly weight: Value },
  epsilon: number,
): Value[] {
  const [rows, C] = rowsOf(x.shape);
  return l.launch(norm, {
    reads: {
      ...{ x: l.operand(x), residual: residual && l.operand(residual), weight: l.operand(weight) },
    },
    writes: { y: l.type(x.shape), sum: residual && l.type(x.shape) },
    scalars: { rows, C, epsilon },
  });
}

export const RMS_NORM_RULES: readonly Rule[] = [
  rule(rmsNorm, (l, { x, weight }, { epsilon }) => normed(l, { x, weight }, epsilon)),
  rule(addRmsNorm, (l, inputs, { epsilon }) => normed(l, inputs, epsilon)),
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
        const partials = blocks(rows, PARTIAL_ROWS);
        const [partial] = l.launch(weightPartials, {
          reads: { ...reads, inverse: both()[1]! },
          writes: { partial: f32(partials, C) },
          scalars: { rows, C },
        });
        return sumRows(l, partial!, partials, weight.shape);
      },
    };
  }),
];
