/** Tensor types, and primitive ops: what is known before any graph is built. */

/** Element types. `bf16` and `f16` occur in stored weights; computation is in `f32`. */
export type DType = "f32" | "bf16" | "f16" | "i32" | "bool";

/** Sizes of a tensor, outermost first; `[]` is a scalar. */
export type Shape = readonly number[];

/** Type of a tensor, known before it is computed. */
export interface TensorType {
  readonly dtype: DType;
  readonly shape: Shape;
}

/** Static arguments of a node; plain data, so that equal nodes can be recognised. */
export type Attributes = Readonly<Record<string, unknown>>;

/** Inputs or outputs of a node, of which a rule names as many as its op has. */
export type Operands<T> = readonly [T, T, T, ...T[]];

/**
 * Rules `F` by the name of their op. Each reads attributes of its own type, which the compiler allows since
 * parameters of methods, unlike those of functions, may be narrower.
 */
export type RulesByName<F extends (...parameters: never[]) => unknown> = Readonly<
  Record<string, { rule(...parameters: Parameters<F>): ReturnType<F> }["rule"]>
>;

/** An op whose meaning every device must know. */
export interface Primitive<A extends Attributes = Attributes> {
  readonly name: string;
  /** The shape rule. Throws `TypeError` with both shapes when inputs do not fit. */
  infer(inputs: readonly TensorType[], attributes: A): readonly TensorType[];
  /**
   * Relation of output 0 to the memory of input 0: a `view` has the same bytes in the same order, an
   * `allowed` op may overwrite it. A `required` op must (state that is updated where it lies); if it
   * has several outputs, each lies where the input of its number does.
   */
  readonly memory?: "view" | "allowed" | "required";
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
