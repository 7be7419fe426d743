/** rms_norm, alone or after the sum of a residual stream, and its gradient. */
import backwardText from "../../../../kernels/backward/rms_norm.cu" with { type: "text" };
import forwardText from "../../../../kernels/forward/rms_norm.cu" with { type: "text" };
import { add } from "../../../graph/primitives.ts";
import { isNode, type Node } from "../../../graph/program.ts";
import { formatType } from "../../../graph/types.ts";
import type { Value } from "../../../graph/value.ts";
import { rmsNorm } from "../../../ops/rms_norm.ts";
import type { Lowering } from "../lowering.ts";
import { blocks, grid, kernel, kernelFile } from "./define.ts";
import { f32, rowsOf, sumRows } from "./reduce.ts";
import { gradientRule, type Rule, rule } from "./rule.ts";

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

/**
 * The two terms of a residual stream, if the norm is the first to read their sum. Then it adds them up: of a
 * 3B model's decoding (36 layers, 1.8 ms) that is 72 launches of about 2 µs fewer, 8 % of a step.
 */
function termsOf({ uses }: Lowering, sum: Value, norm: Node): readonly Value[] | undefined {
  const maker = uses.maker(sum);
  if (!isNode(maker, add) || uses.isResult(sum) || uses.readers(sum)[0] !== norm) return undefined;
  const [x, residual] = maker.inputs;
  return formatType(x) === formatType(residual) ? [x, residual] : undefined;
}

export const RMS_NORM_RULES: readonly Rule[] = [
  rule(rmsNorm, (l, inputs, { epsilon }, [output]) => {
    const [rows, C] = rowsOf(output.shape), type = l.type(output.shape);
    const terms = termsOf(l, inputs.x, l.uses.maker(output)!);
    const [x, residual] = (terms ?? [inputs.x]).map((value) => l.operand(value));
    const [y, sum] = l.launch(norm, {
      reads: { x, residual, weight: l.operand(inputs.weight) },
      writes: { y: type, sum: terms && type },
      scalars: { rows, C, epsilon },
    });
    if (sum) l.set(inputs.x, sum); // in place of the one that the add has launched
    return [y!];
  }),
  gradientRule(rmsNorm, (l, { x, weight }, { upstream, attributes: { epsilon } }) => {
    const [rows, C] = rowsOf(x.shape);
    const reads = { dy: l.operand(upstream), x: l.operand(x) };
    const [dx, inverse] = l.launch(backward, {
      reads: { ...reads, weight: l.operand(weight) },
      writes: { dx: l.type(x.shape), inverse: f32(rows) },
      scalars: { rows, C, epsilon },
    });
    const partials = blocks(rows, PARTIAL_ROWS);
    const [partial] = l.launch(weightPartials, {
      reads: { ...reads, inverse },
      writes: { partial: f32(partials, C) },
      scalars: { rows, C },
    });
    return { x: dx, weight: sumRows(l, partial!, partials, weight.shape) };
  }),
];
