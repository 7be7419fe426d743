/** Σ x x over an axis reads x once and keeps no squares: the norm of gradients. */
import { mul, sum } from "../../../graph/primitives.ts";
import { isNode, type Program } from "../../../graph/program.ts";
import { substitute, type Substitution } from "../../../graph/substitute.ts";
import { Uses } from "../../../graph/uses.ts";
import { modelOp } from "../../../ops/define.ts";

/** x [...] → the sum of its squares along one axis, which stays with size 1 */
export const sumSquares = modelOp<{ axis: number }>()({
  name: "sum_squares",
  inputs: ["x"],
  infer: ({ x }, { axis }) => sum.infer([x], { axis }),
  decompose: ({ x }, { axis }) => x.mul(x).sum(axis),
});

/** Joins squares and their sum. */
export function joinSquares(program: Program): Program {
  const uses = new Uses(program);
  return substitute(
    program,
    program.nodes.flatMap((node): Substitution[] => {
      const square = isNode(node, sum) ? uses.maker(node.inputs[0]) : undefined;
      if (!isNode(square, mul)) return [];
      const [x, other] = square.inputs;
      const { op } = sumSquares;
      const { attributes, outputs } = node;
      return x === other ? [{ op, inputs: [x], attributes, results: [outputs] }] : [];
    }),
  );
}
