/**
 * A residual stream is added up and normed in one launch, where the norm is the first to read the sum.
 *
 *   s = a + b;  y = rms_norm(s)   →   y, s = add_rms_norm(a, b)
 */
import { add } from "../../../graph/primitives.ts";
import { isNode, type Program } from "../../../graph/program.ts";
import { substitute, type Substitution } from "../../../graph/substitute.ts";
import { formatType } from "../../../graph/types.ts";
import { Uses } from "../../../graph/uses.ts";
import { modelOp } from "../../../ops/define.ts";
import { rmsNorm } from "../../../ops/rms_norm.ts";

/** x, residual [..., C] → the norm of their sum, and the sum */
export const addRmsNorm = modelOp<{ epsilon: number }>()({
  name: "add_rms_norm",
  inputs: ["x", "residual", "weight"],
  infer: ({ x }) => [x, x],
  decompose({ x, residual, weight }, { epsilon }) {
    const sum = x.add(residual);
    return [rmsNorm({ x: sum, weight }, { epsilon }), sum];
  },
});

/** Joins sums of equal shapes and the norms that read them first. */
export function addBeforeNorm(program: Program): Program {
  const uses = new Uses(program);
  return substitute(
    program,
    program.nodes.flatMap((node): Substitution[] => {
      if (!isNode(node, rmsNorm.op)) return [];
      const [sum, weight] = node.inputs;
      const maker = uses.maker(sum);
      if (!isNode(maker, add) || uses.isResult(sum) || uses.readers(sum)[0] !== node) return [];
      const [x, residual] = maker.inputs;
      if (formatType(x) !== formatType(residual)) return [];
      return [{
        op: addRmsNorm.op,
        inputs: [x, residual, weight],
        attributes: node.attributes,
        results: [node.outputs, [sum]],
      }];
    }),
  );
}
