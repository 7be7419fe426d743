/**
 * The vocabulary of the compute graph: tensors types, ops, nodes, programs.
 *
 * A program is a list of nodes in execution order over values whose shapes are all known. Ops come in
 * two levels: a *primitive* has a meaning of its own (each device must know it), a *model op* is
 * defined by `decompose`, its reference meaning in terms of simpler ops; a device may run it whole or
 * let `rewrite.ts` expand it. Nothing here knows any particular op.
 */
import type { Builder } from "./builder.ts";

/** Element types. `bf16` and `f16` occur in stored weights; computation is in `f32`. */
export type DType = "f32" | "bf16" | "f16" | "i32" | "bool";

/** Sizes of a tensor, outermost first; `[]` is a scalar. */
export type Shape = readonly number[];

/** What is known about a tensor before it is computed. */
export interface TensorType {
  readonly dtype: DType;
  readonly shape: Shape;
}

/** One tensor of a program. Compared by identity; `id` only orders and labels it. */
export interface Value extends TensorType {
  readonly id: number;
}

/** Static arguments of a node; plain data, so that equal nodes can be recognised. */
export type Attributes = Readonly<Record<string, unknown>>;

/** The definition of an operation, shared by all nodes that use it. */
export interface Op<A extends Attributes = Attributes> {
  readonly name: string;
  /** The shape rule. Throws `TypeError` with both shapes when inputs do not fit. */
  infer(inputs: readonly TensorType[], attributes: A): readonly TensorType[];
  /** The reference meaning in simpler ops; absent for primitives. */
  decompose?(g: Builder, inputs: readonly Value[], attributes: A): readonly Value[];
  /**
   * Reverse mode: from the gradient of output 0 those of the inputs, `undefined` where there is none.
   * Where it is absent the decomposition is differentiated. A rule may build more than is wanted;
   * unread nodes are dropped.
   */
  vjp?(g: Builder, node: Node<A>, upstream: Value): readonly (Value | undefined)[];
  /**
   * How output 0 relates to the memory of input 0: a `view` has the same bytes in the same order, an
   * `allowed` op may overwrite it. A `required` op must (state that is updated where it lies); if it
   * has several outputs, each lies where the input of its number does.
   */
  readonly memory?: "view" | "allowed" | "required";
}

/** One application of an op. */
export interface Node<A extends Attributes = Attributes> {
  readonly op: Op;
  readonly inputs: readonly Value[];
  readonly attributes: A;
  readonly outputs: readonly Value[];
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

/** Number of elements in a tensor of this shape. */
export function elementCount(shape: Shape): number {
  return shape.reduce((product, size) => product * size, 1);
}

/** Bytes of one element. */
export function elementBytes(dtype: DType): number {
  return { f32: 4, i32: 4, bf16: 2, f16: 2, bool: 1 }[dtype];
}

/** Bytes of a densely stored tensor. */
export function tensorBytes(type: TensorType): number {
  return elementCount(type.shape) * elementBytes(type.dtype);
}

/** `f32[2, 64]`, for messages. */
export function formatType(type: TensorType): string {
  return `${type.dtype}[${type.shape.join(", ")}]`;
}
