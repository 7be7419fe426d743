/** Floating-point operations of a program's matrix products, a multiplication and an addition each. */
import { prepare } from "./rewrite.ts";
import type { Program } from "./program.ts";
import { elementCount } from "./types.ts";

/** Counts 2·m·n·k for every product that is computed; what is computed once counts once. */
export function countFlops(program: Program): number {
  const { nodes } = prepare(program, (op) => !op.decompose);
  return nodes.filter(({ op }) => op.name === "matmul").reduce((total, node) => {
    const { shape } = node.inputs[0]!;
    const k = shape.at(node.attributes.transposeA ? -2 : -1)!;
    return total + 2 * k * elementCount(node.outputs[0]!.shape);
  }, 0);
}
