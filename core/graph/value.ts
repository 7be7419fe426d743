/**
 * Values of a graph. Their methods apply primitives, so that model code and decompositions read like
 * the equations they implement: `x.div(rms).mul(weight)`.
 *
 * Elementwise methods broadcast as NumPy does and take numbers; negative axes count from the end and are
 * made positive before they reach a node.
 */
import * as p from "./primitives.ts";
import {
  type Attributes,
  type DType,
  formatType,
  type Primitive,
  type Shape,
  type TensorType,
} from "./types.ts";

/** The part of a builder that values and ops use. */
export interface Graph {
  /** Appends a node and returns its outputs, shapes inferred. */
  apply<A extends Attributes>(op: Primitive<A>, inputs: readonly Value[], attributes: A): Value[];
  /** `apply` for an op with one output. */
  apply1<A extends Attributes>(op: Primitive<A>, inputs: readonly Value[], attributes: A): Value;
  /** A small tensor known when the program is written. A number makes a scalar. */
  constant(data: number | readonly number[], dtype?: DType): Value;
  /** `[0, 1, …, length − 1]` as i32. */
  iota(length: number): Value;
}

/** The other side of an elementwise op. */
type Operand = Value | number;

/** One tensor of a program. Compared by identity; `id` only orders and labels it. */
export class Value implements TensorType {
  readonly id: number;
  readonly dtype: DType;
  readonly shape: Shape;
  readonly #graph: Graph;

  constructor(graph: Graph, id: number, { dtype, shape }: TensorType) {
    this.#graph = graph;
    this.id = id;
    this.dtype = dtype;
    this.shape = shape;
  }

  /** The graph that this value belongs to. */
  get graph(): Graph {
    return this.#graph;
  }

  add(other: Operand): Value {
    return this.#apply(p.add, [this, this.#operand(other)], {});
  }

  sub(other: Operand): Value {
    return this.#apply(p.sub, [this, this.#operand(other)], {});
  }

  mul(other: Operand): Value {
    return this.#apply(p.mul, [this, this.#operand(other)], {});
  }

  /** Quotient; of integers, truncated. */
  div(other: Operand): Value {
    return this.#apply(p.div, [this, this.#operand(other)], {});
  }

  /** Returns whether this ≤ other, as bool. */
  lessEqual(other: Operand): Value {
    return this.#apply(p.lessEqual, [this, this.#operand(other)], {});
  }

  /** 1 where equal, else 0, in f32. */
  equalFlags(other: Value): Value {
    return this.lessEqual(other).select(other.lessEqual(this).select(1, 0), 0);
  }

  exp(): Value {
    return this.#apply(p.exp, [this], {});
  }

  log(): Value {
    return this.#apply(p.log, [this], {});
  }

  sqrt(): Value {
    return this.#apply(p.sqrt, [this], {});
  }

  sin(): Value {
    return this.#apply(p.sin, [this], {});
  }

  cos(): Value {
    return this.#apply(p.cos, [this], {});
  }

  sigmoid(): Value {
    return this.#apply(p.sigmoid, [this], {});
  }

  /** `this ? a : b`, elementwise. */
  select(a: Operand, b: Operand): Value {
    const [x, y] = [a, b].map((value) =>
      typeof value === "number" ? this.#graph.constant(value) : value
    ) as [Value, Value];
    return this.#apply(p.select, [this, x, y], {});
  }

  /** The same numbers in another element type. */
  cast(dtype: DType): Value {
    return this.dtype === dtype ? this : this.#apply(p.cast, [this], { dtype });
  }

  /** Sum over one axis, which stays with size 1. */
  sum(axis: number): Value {
    return this.#apply(p.sum, [this], { axis: axisOf(this, axis) });
  }

  /** Largest element along one axis, which stays with size 1. */
  max(axis: number): Value {
    return this.#apply(p.max, [this], { axis: axisOf(this, axis) });
  }

  /** Index of the first largest element along one axis, which stays with size 1; i32. */
  argmax(axis: number): Value {
    return this.#apply(p.argmax, [this], { axis: axisOf(this, axis) });
  }

  /** Matrix product over the last two axes times `scale`; leading axes broadcast. */
  matmul(other: Value, { transposeA = false, transposeB = false, scale = 1 } = {}): Value {
    return this.#apply(p.matmul, [this, other], { transposeA, transposeB, scale });
  }

  /** The same elements under another shape. */
  reshape(shape: Shape): Value {
    return this.#apply(p.reshape, [this], { shape });
  }

  /** Output axis i is input axis `order[i]`. */
  transpose(order: readonly number[]): Value {
    return this.#apply(p.transpose, [this], { order });
  }

  /** Repeats axes of size 1 (and missing leading ones) until the shape is reached. */
  broadcast(shape: Shape): Value {
    return this.#apply(p.broadcast, [this], { shape });
  }

  /** Elements `start ≤ i < end` of one axis. */
  slice(axis: number, start: number, end: number): Value {
    return this.#apply(p.slice, [this], { axis: axisOf(this, axis), start, end });
  }

  /** Entries of one axis by index; that axis becomes the axes of `indices`. */
  gather(indices: Value, axis: number): Value {
    return this.#apply(p.gather, [this, indices], { axis: axisOf(this, axis) });
  }

  /** One element of each last-axis row: `out[i] = this[i, indices[i]]`. */
  takeLast(indices: Value): Value {
    return this.#apply(p.takeLast, [this, indices], {});
  }

  /** Adds entries of `update` along one axis by index, repeated indices too: undoes `gather`. */
  scatterAdd(indices: Value, update: Value, axis: number): Value {
    return this.#apply(p.scatterAdd, [this, indices, update], { axis: axisOf(this, axis) });
  }

  /** Raises one element of each last-axis row: `out[i, indices[i]] += update[i]`. */
  addLast(indices: Value, update: Value): Value {
    return this.#apply(p.addLast, [this, indices, update], {});
  }

  /** `value`, in the memory of this buffer. */
  assign(value: Value): Value {
    return this.#apply(p.assign, [this, value], {});
  }

  /**
   * Overwrites slots `start[r] …` of axis 2 of row r: this [R, K, S, D], update [R, K, T, D],
   * start [R] i32. The result lies in this buffer's own memory.
   */
  writeSlots(update: Value, start: Value): Value {
    return this.#apply(p.writeSlots, [this, update, start], {});
  }

  /**
   * This value, but never taken for equal to another: a segment of the program that is computed again
   * to save memory starts from it (see `differentiate.ts`).
   */
  recompute(segment: number): Value {
    return this.#apply(p.recompute, [this], { segment });
  }

  #apply<A extends Attributes>(op: Primitive<A>, inputs: readonly Value[], attributes: A): Value {
    return this.#graph.apply1(op, inputs, attributes);
  }

  #operand(value: Operand): Value {
    return typeof value === "number" ? this.#graph.constant(value, this.dtype) : value;
  }
}

/** Joins values along one axis. */
export function concat(values: readonly Value[], axis: number): Value {
  const [first] = values;
  if (!first) throw new TypeError("cannot join no values");
  return first.graph.apply1(p.concat, values, { axis: axisOf(first, axis) });
}

/** A non-negative axis of a tensor. Throws `TypeError` when it has no such axis. */
function axisOf(type: TensorType, axis: number): number {
  const positive = axis < 0 ? axis + type.shape.length : axis;
  if (positive < 0 || positive >= type.shape.length) {
    throw new TypeError(`cannot take axis ${axis} of ${formatType(type)}`);
  }
  return positive;
}
