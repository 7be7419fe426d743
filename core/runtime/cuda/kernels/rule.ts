/**
 * How a rule is written: what an op becomes, with its inputs by name and its attributes in their types.
 *
 * A rule of a gradient says by input what computes it, and is asked for those that are wanted.
 */
import { type GradientAttributes, gradientOp } from "../../../graph/differentiate.ts";
import type { Node, Op } from "../../../graph/program.ts";
import type { Attributes, Operands, Primitive } from "../../../graph/types.ts";
import type { Value } from "../../../graph/value.ts";
import type { ModelOp, NamedNode } from "../../../ops/define.ts";
import type { Lowering } from "../lowering.ts";

/** What nodes of one op become. */
export interface Rule {
  readonly op: Op;
  readonly lower: (l: Lowering, node: Node) => readonly Value[];
}

/** Inputs or outputs of a node: as many as its rule names. */
export type Values = Operands<Value>;

/** The rule of a model op. */
export function rule<A extends Attributes, R extends string, O extends string>(
  op: ModelOp<A, R, O>,
  lower: (
    l: Lowering,
    inputs: NamedNode<A, R, O>["inputs"],
    attributes: A,
    outputs: Values,
  ) => readonly Value[],
): Rule {
  return {
    op: op.op,
    lower: (l, { inputs, attributes, outputs }) =>
      lower(l, op.named(inputs), attributes as A, outputs as Values),
  };
}

/** The rule of an op whose inputs are a list. */
export function listRule<A extends Attributes>(
  op: Primitive<A>,
  lower: (l: Lowering, inputs: Values, attributes: A, outputs: Values) => readonly Value[],
): Rule {
  return {
    op,
    lower: (l, { inputs, attributes, outputs }) =>
      lower(l, inputs as Values, attributes as A, outputs as Values),
  };
}

/** What the rule of a gradient knows besides the inputs of the op. */
export interface Backward<A extends Attributes> {
  readonly attributes: A;
  readonly output: Value;
  /** Gradient of the output. */
  readonly upstream: Value;
}

/** What computes the gradient of each input that has one. */
type Gradients<N extends string> = { readonly [name in N]?: () => Value };

/** The rule of a model op's gradient. */
export function gradientRule<A extends Attributes, R extends string, O extends string>(
  op: ModelOp<A, R, O>,
  gradients: (
    l: Lowering,
    inputs: NamedNode<A, R, O>["inputs"],
    backward: Backward<A>,
  ) => Gradients<R | O>,
): Rule {
  return { op: gradientOp(op.op), lower: lowerGradient(op, 0, gradients) };
}

/** The rule of a gradient that reads what the op's own kernel left; see `fuse/statistics.ts`. */
export function statisticGradientRule<A extends Attributes, R extends string, O extends string>(
  op: ModelOp<A, R, O>,
  { backward }: { readonly backward: Op<GradientAttributes> },
  gradients: (
    l: Lowering,
    inputs: NamedNode<A, R, O>["inputs"],
    backward: Backward<A> & { readonly statistic: Value },
  ) => Gradients<R | O>,
): Rule {
  return { op: backward, lower: lowerGradient(op, 1, gradients) };
}

/** Inputs of the node are those of the op, its output, the upstream gradient, and `more` others. */
function lowerGradient<A extends Attributes, R extends string, O extends string>(
  op: ModelOp<A, R, O>,
  more: number,
  gradients: (
    l: Lowering,
    inputs: NamedNode<A, R, O>["inputs"],
    backward: Backward<A> & { readonly statistic: Value },
  ) => Gradients<R | O>,
): Rule["lower"] {
  return (l, node) => {
    const { op: attributes, wanted } = node.attributes as GradientAttributes;
    const count = node.inputs.length - 2 - more;
    const [output, upstream, statistic] = node.inputs.slice(count) as [Value, Value, Value];
    const by: Readonly<Record<string, (() => Value) | undefined>> = gradients(
      l,
      op.named(node.inputs.slice(0, count)),
      { attributes: attributes as A, output, upstream, statistic },
    );
    return wanted.map((input) => {
      const name = op.names[input]!;
      const gradient = by[name];
      if (!gradient) throw new TypeError(`cannot differentiate "${op.op.name}" by "${name}"`);
      return gradient();
    });
  };
}

/** Makes something when it is first asked for. */
export function once<T>(make: () => T): () => T {
  let made: T | undefined;
  return () => made ??= make();
}
