/** Floating-point operations of a program's matrix products, a multiplication and an addition each. */
import { matmul } from "./primitives.ts";
import { isNode, type Program } from "./program.ts";
import { prepare } from "./rewrite.ts";
import { elementCount } from "./types.ts";

/** Counts 2·m·n·k for every product that is computed; what is computed once counts once. */
export function countFlops(program: Program): number {
  const { nodes } = prepare(program, (op) => !op.decompose);
  return nodes.filter((node) => isNode(node, matmul)).reduce((total, node) => {
    const { inputs: [a], attributes, outputs } = node;
    const k = a.shape.at(attributes.transposeA ? -2 : -1)!;
    return total + 2 * k * elementCount(outputs[0]!.shape);
  }, 0);
}
