/**
 * New contents of a state are computed in its memory, not in a temporary of its size.
 *
 *   assign(state, a + b)                    →   compute_into(state, a, b)
 *   assign(θ, …), assign(m, …) of adamw     →   adamw_in_place(θ, m, v, …)
 *
 * Only where nothing reads the old content afterwards.
 */
import { add, assign, div, mul, sub } from "../../../graph/primitives.ts";
import { isNode, type Node, type NodeOf, type Program } from "../../../graph/program.ts";
import { substitute, type Substitution } from "../../../graph/substitute.ts";
import { Uses } from "../../../graph/uses.ts";
import type { Value } from "../../../graph/value.ts";
import { adamw } from "../../../ops/adamw.ts";
import { modelOp } from "../../../ops/define.ts";

/** Elementwise ops of two operands that write into any memory. */
const BINARY = { add, sub, mul, div } as const;

/** Their names. */
export type BinaryName = keyof typeof BINARY;

/** state [...], a and b that broadcast to its shape → a op b, in the memory of the state */
export const computeInto = modelOp<{ op: BinaryName }>()({
  name: "compute_into",
  inputs: ["state", "a", "b"],
  infer: ({ state }) => state,
  decompose: ({ state, a, b }, { op }) => state.assign(a[op](b)),
  memory: "required",
});

/** adamw whose results lie where parameter, m and v were */
export const adamwInPlace = modelOp<{ beta1: number; beta2: number; epsilon: number }>()({
  name: "adamw_in_place",
  inputs: ["parameter", "m", "v", "gradient", "scale", "decay", "stepSize", "correction"],
  infer: ({ parameter, m, v }) => [parameter, m, v],
  decompose(inputs, attributes) {
    const { parameter, m, v } = inputs;
    const results = adamw.all(inputs, attributes);
    return [parameter, m, v].map((state, i) => state.assign(results[i]!));
  },
  memory: "required",
});

/** Computes new contents of a state in its memory. */
export function computeInPlace(program: Program): Program {
  const uses = new Uses(program);
  return substitute(
    program,
    program.nodes.flatMap((node): Substitution[] => {
      const optimizer = adamw.of(node);
      if (optimizer) {
        const targets = node.outputs.map((value) => assignedTo(uses, node, value));
        if (!targets.every((target, i) => target?.inputs[0] === node.inputs[i])) return [];
        return [{
          op: adamwInPlace.op,
          inputs: node.inputs,
          attributes: node.attributes,
          results: targets.map((target, i) => [node.outputs[i]!, ...target!.outputs]),
        }];
      }
      if (!(node.op.name in BINARY) || node.outputs[0]!.dtype !== "f32") return [];
      const target = assignedTo(uses, node, node.outputs[0]!);
      return target
        ? [{
          op: computeInto.op,
          inputs: [target.inputs[0], ...node.inputs],
          attributes: { op: node.op.name as BinaryName },
          results: [[...node.outputs, ...target.outputs]],
        }]
        : [];
    }),
  );
}

/** The node that assigns a value to a state which nothing reads any more. */
function assignedTo(uses: Uses, maker: Node, value: Value): NodeOf | undefined {
  const [reader, ...others] = uses.readers(value);
  if (others.length > 0 || uses.isResult(value) || !isNode(reader, assign)) return undefined;
  const [state, assigned] = reader.inputs;
  if (assigned !== value) return undefined;
  const isReadLater = uses.readers(state).some((node) =>
    node !== reader && uses.isAfter(node, maker)
  );
  return isReadLater ? undefined : reader;
}
