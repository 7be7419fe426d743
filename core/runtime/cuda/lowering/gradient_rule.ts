/** What rules of gradients have in common. */
import type { GradientAttributes } from "../../../graph/differentiate.ts";
import type { Node } from "../../../graph/program.ts";
import type { TensorType } from "../../../graph/types.ts";
import type { Value } from "../../../graph/value.ts";
import type { Lowering, Rule } from "./lowering.ts";

/** What a rule knows of a node. */
export interface GradientCall {
  readonly inputs: readonly Value[];
  readonly output: Value;
  readonly upstream: Value;
  readonly attributes: Readonly<Record<string, unknown>>;
}

/** Computes gradients of inputs on demand, by their number. */
export type Gradients = (l: Lowering, call: GradientCall) => (input: number) => Value;

/** The rule of a gradient: what is wanted, in the order of the inputs. */
export function gradientRule(gradients: Gradients): Rule {
  return (l, node: Node) => {
    const { op: attributes, wanted } = node.attributes as GradientAttributes;
    const inputs = node.inputs.slice(0, -2);
    const [output, upstream] = node.inputs.slice(-2) as [Value, Value];
    const of = gradients(l, { inputs, output, upstream, attributes });
    return wanted.map((input) => of(input));
  };
}

/** The type of a tensor in f32. */
export function f32(...shape: number[]): TensorType {
  return { dtype: "f32", shape };
}

/** The sum over rows of partial sums that a kernel made, in order. */
export function sumPartials(l: Lowering, partial: Value): Value {
  const [chunks, N] = partial.shape as [number, number];
  return l.launch("sum_partials", {
    reads: { partial },
    writes: { sum: f32(N) },
    numbers: { chunks, N },
  })[0]!;
}
