/**
 * A residual stream is added up and normed in one launch, where the norm is the first to read the sum.
 *
 *   s = a + b;  y = rms_norm(s)   →   y, s = add_rms_norm(a, b)
 */
import { add } from "../../../graph/primitives.ts";
import { isNode, type Op, type Program } from "../../../graph/program.ts";
import { substitute, type Substitution } from "../../../graph/substitute.ts";
import { formatType } from "../../../graph/types.ts";
import { Uses } from "../../../graph/uses.ts";
import { modelOp } from "../../../ops/define.ts";
import { rmsNorm } from "../../../ops/rms_norm.ts";
import { rmsNormWithStatistic } from "./statistics.ts";

/** x, residual [..., C] → the norm of their sum, the sum, and the statistic of the norm if it is kept */
export const addRmsNorm = modelOp<{ epsilon: number; keepsStatistic: boolean }>()({
  name: "add_rms_norm",
  inputs: ["x", "residual", "weight"],
  infer: ({ x }, { keepsStatistic }) =>
    keepsStatistic ? [x, x, { dtype: "f32", shape: x.shape.slice(0, -1) }] : [x, x],
  decompose({ x, residual, weight }, { epsilon, keepsStatistic }) {
    const sum = x.add(residual);
    const norm: Op = keepsStatistic ? rmsNormWithStatistic.forward : rmsNorm.op;
    const [y, ...statistic] = sum.graph.apply(norm, [sum, weight], { epsilon });
    return [y!, sum, ...statistic];
  },
});

/** Joins sums of equal shapes and the norms that read them first. */
export function addBeforeNorm(program: Program): Program {
  const uses = new Uses(program);
  return substitute(
    program,
    program.nodes.flatMap((node): Substitution[] => {
      const keepsStatistic = isNode(node, rmsNormWithStatistic.forward);
      if (!keepsStatistic && !isNode(node, rmsNorm.op)) return [];
      const [sum, weight] = node.inputs;
      const maker = uses.maker(sum);
      if (!isNode(maker, add) || uses.isResult(sum)) return [];
      const [x, residual] = maker.inputs;
      if (formatType(x) !== formatType(residual) || uses.readers(sum)[0] !== node) return [];
      const [y, ...statistic] = node.outputs.map((value) => [value]);
      return [{
        op: addRmsNorm.op,
        inputs: [x, residual, weight],
        attributes: { ...node.attributes, keepsStatistic },
        results: [y!, [sum], ...statistic],
      }];
    }),
  );
}
