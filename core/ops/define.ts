/**
 * Definitions of model ops: inputs by name, the shape rule, the reference meaning in simpler ops, and
 * the gradient where it has a rule of its own. An op is called like a function.
 */
import type { Node, Op } from "../graph/program.ts";
import type { Attributes, TensorType } from "../graph/types.ts";
import type { Value } from "../graph/value.ts";

/** Inputs by name; those in `O` may be absent. */
type Named<R extends string, O extends string, T> =
  & { readonly [name in R]: T }
  & { readonly [name in O]?: T | undefined };

/** The definition of a model op with inputs `R`, optional inputs `O` and attributes `A`. */
export interface Definition<A extends Attributes, R extends string, O extends string> {
  readonly name: string;
  /** In the order in which nodes hold them. */
  readonly inputs: readonly R[];
  /** Behind the others; an absent one leaves no gap. At most the last ones may be absent. */
  readonly optional?: readonly O[];
  infer(inputs: Named<R, O, TensorType>, attributes: A): TensorType | readonly TensorType[];
  decompose(inputs: Named<R, O, Value>, attributes: A): Value | readonly Value[];
  /** Gradients of inputs from the gradient of output 0; those left out have none. */
  vjp?(
    inputs: Named<R, O, Value>,
    attributes: A,
    upstream: Value,
    output: Value,
  ): { readonly [name in R | O]?: Value | undefined };
  readonly memory?: Op["memory"];
  readonly recomputes?: boolean;
}

/** A node of a model op, with its inputs by name. */
export interface NamedNode<A extends Attributes, R extends string, O extends string> {
  readonly inputs: Named<R, O, Value>;
  readonly attributes: A;
  readonly outputs: readonly Value[];
}

/** A model op: apply it by calling it. */
export interface ModelOp<A extends Attributes, R extends string, O extends string> {
  /** The result; the first one if there are several. */
  (
    inputs: Named<R, O, Value>,
    ...attributes: Record<never, never> extends A ? [attributes?: A] : [attributes: A]
  ): Value;
  /** All results. */
  all(inputs: Named<R, O, Value>, attributes: A): Value[];
  /** A node of this op by names; undefined for a node of another. */
  of(node: Node | undefined): NamedNode<A, R, O> | undefined;
  /** Names of the inputs, in the order in which nodes hold them. */
  readonly names: readonly (R | O)[];
  /** Inputs of a node by name. */
  named(inputs: readonly Value[]): Named<R, O, Value>;
  /** The definition as nodes refer to it. */
  readonly op: Op<A> & Required<Pick<Op<A>, "decompose">>;
}

/** Defines a model op. Called twice: the type of the attributes cannot be inferred, the others are. */
export function modelOp<A extends Attributes = Record<never, never>>() {
  return <const R extends string, const O extends string = never>(
    definition: Definition<A, R, O>,
  ): ModelOp<A, R, O> => {
    const names: readonly (R | O)[] = [...definition.inputs, ...definition.optional ?? []];
    const named = <T>(values: readonly T[]) =>
      Object.fromEntries(values.map((value, i) => [names[i]!, value])) as Named<R, O, T>;
    const { vjp } = definition;
    const op: ModelOp<A, R, O>["op"] = {
      name: definition.name,
      infer: (inputs, attributes) => listed(definition.infer(named(inputs), attributes)),
      decompose: (_, inputs, attributes) => listed(definition.decompose(named(inputs), attributes)),
      ...(vjp && {
        vjp(_, { inputs, outputs, attributes }, upstream) {
          const gradients = vjp(named(inputs), attributes, upstream, outputs[0]!);
          return names.slice(0, inputs.length).map((name) => gradients[name]);
        },
      }),
      memory: definition.memory,
      recomputes: definition.recomputes,
    };
    const all = (inputs: Named<R, O, Value>, attributes: A) => {
      const values = names.map((name) => inputs[name] as Value | undefined)
        .filter((value) => value !== undefined);
      return values[0]!.graph.apply(op, values, attributes);
    };
    const apply = (inputs: Named<R, O, Value>, attributes = {} as A) => all(inputs, attributes)[0]!;
    const of = (node: Node | undefined) =>
      node?.op === op ? { ...node, inputs: named(node.inputs) } : undefined;
    return Object.assign(apply, { all, of, names, named, op }) as ModelOp<A, R, O>;
  };
}

function listed<T extends TensorType>(results: T | readonly T[]): readonly T[] {
  return Array.isArray(results) ? results : [results as T];
}
