/** The cases of `op_cases.ts` that have a derivative, with a scalar to differentiate. */
import { WITHOUT_DERIVATIVE } from "../../../core/graph/derivatives.ts";
import { rebuild } from "../../../core/graph/rewrite.ts";
import type { Program } from "../../../core/graph/program.ts";
import { elementCount } from "../../../core/graph/types.ts";
import { OP_CASES, type OpCase } from "./cases.ts";

/** The case with a scalar output: a weighted sum of the result, so that no gradient is constant. */
export function scalarOf({ program }: OpCase): Program {
  const result = program.outputs.get("result")!;
  const whole = { ...program, outputs: new Map([["result", result]]) };
  return rebuild(
    whole,
    (g, node, inputs) => g.apply(node.op, inputs, node.attributes),
    (g, get) => {
      const weights = g.input("weights", { dtype: "f32", shape: result.shape });
      const count = elementCount(result.shape);
      const product = get(result).mul(weights).reshape([count]);
      g.output("scalar", product.sum(0).reshape([]));
    },
  );
}

/** Names of the inputs that a case is differentiated by. */
export function variables({ program, constants }: OpCase): string[] {
  const floats = [...program.inputs].filter(([, { dtype }]) => dtype === "f32");
  return floats.map(([name]) => name).filter((name) => !constants.includes(name));
}

/** All cases with a derivative. */
export const GRADIENT_CASES: readonly OpCase[] = OP_CASES.filter((one) => {
  const isFloat = one.program.outputs.get("result")!.dtype === "f32";
  return !WITHOUT_DERIVATIVE.has(one.op) && isFloat && variables(one).length > 0;
});
