/**
 * With few rows, as in decoding, reading weights is all the work, and every launch costs a gap: layers
 * that read the same rows go together, and gate and up projection end in their product.
 *
 *   y = x Wᵀ;  z = x Vᵀ;  …          →   y, z, … = linears(x)
 *   y = swiglu(x Wᵀ, x Vᵀ)           →   y = linear_swiglu(x)
 */
import type { Node, Op, Program } from "../../../graph/program.ts";
import { substitute, type Substitution } from "../../../graph/substitute.ts";
import { type Attributes, formatType } from "../../../graph/types.ts";
import { Uses } from "../../../graph/uses.ts";
import type { Value } from "../../../graph/value.ts";
import { swiglu } from "../../../ops/activation.ts";
import { modelOp } from "../../../ops/define.ts";
import { linear } from "../../../ops/linear.ts";
import { sampleOp } from "../../../ops/sample.ts";

/** Rows up to which reading the weights is what takes time. */
export const FEW_ROWS = 64;

/** Layers that one launch takes. */
export const MOST_TOGETHER = 3;

/** x [M, K], gate and up [N, K] → silu(x gateᵀ) · (x upᵀ), [M, N] */
export const linearSwiglu = modelOp()({
  name: "linear_swiglu",
  inputs: ["x", "gate", "up"],
  infer({ x, gate, up }) {
    if (formatType(gate) !== formatType(up) || gate.shape[1] !== x.shape[1]) {
      throw new TypeError(`cannot gate ${formatType(x)} by ${formatType(gate)}`);
    }
    return { dtype: x.dtype, shape: [x.shape[0]!, gate.shape[0]!] };
  },
  decompose: ({ x, gate, up }) =>
    swiglu({ gate: linear({ x, weight: gate }), up: linear({ x, weight: up }) }),
});

export interface LinearsAttributes extends Attributes {
  /** By layer, whether it has a bias. */
  readonly biases: readonly boolean[];
  /** Whether the results, such as logits, are read as f32, and lose nothing if they are written so. */
  readonly wide: boolean;
}

/** A weight [N, K] and a bias [N]. */
export interface Layer {
  readonly weight: Value;
  readonly bias: Value | undefined;
}

/** Inputs of `linears` by layer. */
export function layersOf(inputs: readonly Value[], { biases }: LinearsAttributes): Layer[] {
  const rest = inputs.slice(1);
  return biases.map((bias) => ({ weight: rest.shift()!, bias: bias ? rest.shift()! : undefined }));
}

/** x [M, K] and by layer a weight and, where it has one, a bias → [M, N] by layer */
export const linearsOp: Op<LinearsAttributes> & Required<Pick<Op, "decompose">> = {
  name: "linears",
  infer: (inputs: readonly Value[], attributes) =>
    layersOf(inputs, attributes).flatMap(({ weight, bias }) =>
      linear.op.infer(bias ? [inputs[0]!, weight, bias] : [inputs[0]!, weight], {})
    ),
  decompose: (_, inputs, attributes: LinearsAttributes) =>
    layersOf(inputs, attributes).map((layer) => linear({ x: inputs[0]!, ...layer })),
};

/** Lets few rows go through gate, up and their product at once, where nothing else reads the two. */
export function joinSwiglu(program: Program): Program {
  const uses = new Uses(program);
  return substitute(
    program,
    program.nodes.flatMap((node): Substitution[] => {
      const found = swiglu.of(node);
      if (!found) return [];
      const { gate, up } = found.inputs;
      const [first, second] = [gate, up].map((value) => linear.of(uses.maker(value))?.inputs);
      if (!first || !second || first.x !== second.x || first.x.shape[0]! > FEW_ROWS) return [];
      if (first.bias || second.bias) return [];
      const areAlone = [gate, up].every((value) =>
        uses.readers(value).length === 1 && !uses.isResult(value)
      );
      return areAlone
        ? [{
          op: linearSwiglu.op,
          inputs: [first.x, first.weight, second.weight],
          attributes: {},
          results: [node.outputs],
        }]
        : [];
    }),
  );
}

/** Lets few rows go through several layers at once. */
export function joinLinears(program: Program): Program {
  const uses = new Uses(program);
  const isWide = (node: Node) => {
    const [output] = node.outputs as [Value];
    return uses.isResult(output) || uses.readers(output).some(({ op }) => op === sampleOp);
  };
  const taken = new Set<Node>();
  const together = (node: Node, x: Value) => {
    const others = uses.readers(x).filter((other) =>
      other !== node && !taken.has(other) && linear.of(other)?.inputs.x === x &&
      isWide(other) === isWide(node) &&
      other.inputs.slice(1).every((value) => !uses.maker(value))
    );
    return [node, ...others].slice(0, MOST_TOGETHER);
  };
  return substitute(
    program,
    program.nodes.flatMap((node): Substitution[] => {
      const found = linear.of(node);
      if (!found || taken.has(node) || found.inputs.x.shape[0]! > FEW_ROWS) return [];
      const group = together(node, found.inputs.x);
      group.forEach((each) => taken.add(each));
      return [{
        op: linearsOp,
        inputs: [found.inputs.x, ...group.flatMap(({ inputs }) => inputs.slice(1))],
        attributes: {
          biases: group.map(({ inputs }) => inputs.length > 2),
          wide: isWide(node),
        } satisfies LinearsAttributes,
        results: group.map(({ outputs }) => outputs),
      }];
    }),
  );
}
