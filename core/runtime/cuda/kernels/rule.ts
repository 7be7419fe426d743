/** Rules: the launches of an op, with its inputs by name and its attributes in their types. */
import { gradientOp } from "../../../graph/differentiate.ts";
import type { Node, Op } from "../../../graph/program.ts";
import type { Attributes, Operands, Primitive } from "../../../graph/types.ts";
import type { Value } from "../../../graph/value.ts";
import type { ModelOp, NamedNode } from "../../../ops/define.ts";
import type { Lowering } from "../lowering.ts";

/** Lowers the nodes of one op. */
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
  return listRule(
    op.op,
    (l, inputs, attributes, outputs) => lower(l, op.named(inputs), attributes, outputs),
  );
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

/** A gradient node besides the inputs of its op. */
export interface Backward<A extends Attributes> {
  readonly attributes: A;
  /** Gradient of the output. */
  readonly upstream: Value;
}

/** The rule of a model op's gradient: those of inputs by name. Launches for one that is not wanted are dropped. */
export function gradientRule<A extends Attributes, R extends string, O extends string>(
  op: ModelOp<A, R, O>,
  gradients: (
    l: Lowering,
    inputs: NamedNode<A, R, O>["inputs"],
    backward: Backward<A>,
  ) => { readonly [name in R | O]?: Value | undefined },
): Rule {
  return listRule(gradientOp(op.op), (l, values, { op: given, wanted }) => {
    const upstream = values.at(-1)!;
    const attributes = given as A;
    const by: Readonly<Record<string, Value | undefined>> = gradients(
      l,
      op.named(values.slice(0, -2)),
      { attributes, upstream },
    );
    return wanted.map((input) => {
      const name = op.names[input]!, gradient = by[name];
      if (!gradient) throw new TypeError(`cannot differentiate "${op.op.name}" by "${name}"`);
      return gradient;
    });
  });
}
