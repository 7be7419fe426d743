/**
 * Programs: lists of nodes in execution order over values whose shapes are all known.
 *
 * Ops come in two levels: a *primitive* has a meaning of its own (each device must know it), a *model op*
 * is defined by `decompose`, its reference meaning in terms of simpler ops; a device may run it whole or
 * let `rewrite.ts` expand it. Nothing here knows any particular op.
 */
import type { Attributes, Operands, Primitive } from "./types.ts";
import type { Graph, Value } from "./value.ts";

/** The definition of an operation, shared by all nodes that use it. */
export interface Op<A extends Attributes = Attributes> extends Primitive<A> {
  /** The reference meaning in simpler ops; absent for primitives. */
  decompose?(graph: Graph, inputs: readonly Value[], attributes: A): readonly Value[];
  /**
   * Reverse mode: from the gradient of output 0 those of the inputs, `undefined` where there is none.
   * Where it is absent the decomposition is differentiated. A rule may build more than is wanted;
   * unread nodes are dropped.
   */
  vjp?(graph: Graph, node: Node<A>, upstream: Value): readonly (Value | undefined)[];
  /** True if the gradient computes the op again from its inputs, so that nothing else of it is kept. */
  readonly recomputes?: boolean | undefined;
}

/** One application of an op. */
export interface Node<A extends Attributes = Attributes> {
  readonly op: Op;
  readonly inputs: readonly Value[];
  readonly attributes: A;
  readonly outputs: readonly Value[];
}

/** A node of a known op. */
export type NodeOf<A extends Attributes = Attributes> = Node<A> & {
  readonly inputs: Operands<Value>;
};

/** Returns whether a node is one of this op, so that attributes and the number of inputs are known. */
export function isNode<A extends Attributes>(
  node: Node | undefined,
  op: Primitive<A>,
): node is NodeOf<A> {
  return node?.op === op;
}

/** A static graph with everything it exchanges with the outside by name. */
export interface Program {
  readonly name: string;
  /** Small tensors that change at every run: token ids, positions. */
  readonly inputs: ReadonlyMap<string, Value>;
  /** Weights, by checkpoint name. */
  readonly parameters: ReadonlyMap<string, Value>;
  /** Tensors that live on between runs, such as KV caches. */
  readonly state: ReadonlyMap<string, Value>;
  /** New contents of state tensors, written into the state's own memory. */
  readonly updates: ReadonlyMap<string, Value>;
  readonly outputs: ReadonlyMap<string, Value>;
  readonly nodes: readonly Node[];
}
