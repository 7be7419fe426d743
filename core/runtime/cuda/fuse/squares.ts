/** Σ x x over an axis reads x once and keeps no squares: the norm of gradients. */
import { mul, sum } from "../../../graph/primitives.ts";
import type { Op, Program } from "../../../graph/program.ts";
import { substitute, type Substitution } from "../../../graph/substitute.ts";
import { Uses } from "../../../graph/uses.ts";
import type { Value } from "../../../graph/value.ts";
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
      const square = node.op === sum as Op ? uses.maker(node.inputs[0]!) : undefined;
      const [x, other] = square?.inputs ?? [];
      if (square?.op !== mul as Op || x !== other) return [];
      const { op } = sumSquares;
      const inputs = [x as Value];
      return [{ op: op as Op, inputs, attributes: node.attributes, results: [node.outputs] }];
    }),
  );
}
