/**
 * The primitive ops: the closed set every device must know and every derivative is written for.
 *
 * Each is exported as a function `(g, inputs…, static arguments) → Value`, so that model code and
 * decompositions read like the equations they implement. Elementwise ops broadcast as NumPy does;
 * negative axes count from the end and are made positive before they reach a node.
 */
import type { Builder } from "./builder.ts";
import {
  type Attributes,
  type DType,
  elementCount,
  formatType,
  type Op,
  type Shape,
  type TensorType,
  type Value,
} from "./types.ts";

const registry = new Map<string, Op>();

/** All primitives by name; tests walk it to see that nothing is left out. */
export const PRIMITIVES: ReadonlyMap<string, Op> = registry;

function primitive<A extends Attributes>(op: Op<A>): Op<A> {
  registry.set(op.name, op as Op);
  return op;
}

/** The shape two operands broadcast to, as in NumPy. Throws `TypeError` when they do not fit. */
export function broadcastShapes(a: Shape, b: Shape): number[] {
  const rank = Math.max(a.length, b.length);
  return Array.from({ length: rank }, (_, axis) => {
    const x = a[axis - rank + a.length] ?? 1;
    const y = b[axis - rank + b.length] ?? 1;
    if (x !== y && x !== 1 && y !== 1) {
      throw new TypeError(`Cannot broadcast [${a.join(", ")}] with [${b.join(", ")}]`);
    }
    return x === 1 ? y : x;
  });
}

function axisOf(type: TensorType, axis: number): number {
  const positive = axis < 0 ? axis + type.shape.length : axis;
  if (positive < 0 || positive >= type.shape.length) {
    throw new TypeError(`Cannot take axis ${axis} of ${formatType(type)}`);
  }
  return positive;
}

// ---- elementwise ---------------------------------------------------------------------------------

type Unary = (g: Builder, x: Value) => Value;
type Binary = (g: Builder, a: Value, b: Value) => Value;

function unary(name: string): Unary {
  const op = primitive({ name, infer: ([x]) => [x!], memory: "allowed" });
  return (g, x) => g.apply1(op, [x], {});
}

function binary(name: string, result?: DType): Binary {
  const op = primitive({
    name,
    infer([a, b]) {
      if (a!.dtype !== b!.dtype) {
        throw new TypeError(`Cannot ${name} ${formatType(a!)} and ${formatType(b!)}`);
      }
      return [{ dtype: result ?? a!.dtype, shape: broadcastShapes(a!.shape, b!.shape) }];
    },
    memory: result ? undefined : "allowed",
  });
  return (g, a, b) => g.apply1(op, [a, b], {});
}

export const add: Binary = binary("add");
export const sub: Binary = binary("sub");
export const mul: Binary = binary("mul");
export const div: Binary = binary("div");
export const lessEqual: Binary = binary("less_equal", "bool");
export const exp: Unary = unary("exp");
export const log: Unary = unary("log");
export const sqrt: Unary = unary("sqrt");
export const sin: Unary = unary("sin");
export const cos: Unary = unary("cos");
export const sigmoid: Unary = unary("sigmoid");

const selectOp = primitive({
  name: "select",
  infer([condition, a, b]) {
    const shape = broadcastShapes(broadcastShapes(condition!.shape, a!.shape), b!.shape);
    return [{ dtype: a!.dtype, shape }];
  },
});

/** `condition ? a : b`, elementwise. */
export function select(g: Builder, condition: Value, a: Value, b: Value): Value {
  return g.apply1(selectOp, [condition, a, b], {});
}

const castOp = primitive<{ dtype: DType }>({
  name: "cast",
  infer: ([x], { dtype }) => [{ dtype, shape: x!.shape }],
});

/** The same numbers in another element type. */
export function cast(g: Builder, x: Value, dtype: DType): Value {
  return x.dtype === dtype ? x : g.apply1(castOp, [x], { dtype });
}

// ---- constants -----------------------------------------------------------------------------------

const constantOp = primitive<{ dtype: DType; shape: Shape; data: readonly number[] }>({
  name: "constant",
  infer: (_, { dtype, shape }) => [{ dtype, shape }],
});

/** A small tensor known when the program is written. A number makes a scalar. */
export function constant(
  g: Builder,
  data: number | readonly number[],
  dtype: DType = "f32",
): Value {
  const list = typeof data === "number" ? [data] : data;
  const shape = typeof data === "number" ? [] : [data.length];
  return g.apply1(constantOp, [], { dtype, shape, data: list });
}

const iotaOp = primitive<{ length: number }>({
  name: "iota",
  infer: (_, { length }) => [{ dtype: "i32", shape: [length] }],
});

/** `[0, 1, …, length − 1]` as i32. */
export function iota(g: Builder, length: number): Value {
  return g.apply1(iotaOp, [], { length });
}

// ---- reductions ----------------------------------------------------------------------------------

type Reduce = (g: Builder, x: Value, axis: number) => Value;

function reduction(name: string, result?: DType): Reduce {
  const op = primitive<{ axis: number }>({
    name,
    infer: ([x], { axis }) => [{
      dtype: result ?? x!.dtype,
      shape: x!.shape.map((size, i) => i === axis ? 1 : size),
    }],
  });
  return (g, x, axis) => g.apply1(op, [x], { axis: axisOf(x, axis) });
}

/** Sum over one axis, which stays with size 1. */
export const sum: Reduce = reduction("sum");
/** Largest element along one axis, which stays with size 1. */
export const max: Reduce = reduction("max");
/** Index of the (first) largest element along one axis, which stays with size 1; i32. */
export const argmax: Reduce = reduction("argmax", "i32");

// ---- products ------------------------------------------------------------------------------------

const matmulOp = primitive<{ transposeA: boolean; transposeB: boolean; scale: number }>({
  name: "matmul",
  infer([a, b], { transposeA, transposeB }) {
    const [m, k1] = transposeA ? [a!.shape.at(-1), a!.shape.at(-2)] : a!.shape.slice(-2);
    const [k2, n] = transposeB ? [b!.shape.at(-1), b!.shape.at(-2)] : b!.shape.slice(-2);
    if (k1 === undefined || k1 !== k2 || m === undefined || n === undefined) {
      throw new TypeError(`Cannot multiply ${formatType(a!)} with ${formatType(b!)}`);
    }
    const batch = broadcastShapes(a!.shape.slice(0, -2), b!.shape.slice(0, -2));
    return [{ dtype: a!.dtype, shape: [...batch, m, n] }];
  },
});

/** Matrix product over the last two axes times `scale`; leading axes broadcast. */
export function matmul(
  g: Builder,
  a: Value,
  b: Value,
  { transposeA = false, transposeB = false, scale = 1 } = {},
): Value {
  return g.apply1(matmulOp, [a, b], { transposeA, transposeB, scale });
}

// ---- movement ------------------------------------------------------------------------------------

const reshapeOp = primitive<{ shape: Shape }>({
  name: "reshape",
  infer([x], { shape }) {
    if (elementCount(x!.shape) !== elementCount(shape)) {
      throw new TypeError(`Cannot reshape ${formatType(x!)} to [${shape.join(", ")}]`);
    }
    return [{ dtype: x!.dtype, shape }];
  },
  memory: "view",
});

/** The same elements under another shape. */
export function reshape(g: Builder, x: Value, shape: Shape): Value {
  return g.apply1(reshapeOp, [x], { shape });
}

const transposeOp = primitive<{ order: readonly number[] }>({
  name: "transpose",
  infer([x], { order }) {
    if (order.length !== x!.shape.length || new Set(order).size !== order.length) {
      throw new TypeError(`Cannot transpose ${formatType(x!)} by [${order.join(", ")}]`);
    }
    return [{ dtype: x!.dtype, shape: order.map((axis) => x!.shape[axis]!) }];
  },
});

/** Output axis i is input axis `order[i]`. */
export function transpose(g: Builder, x: Value, order: readonly number[]): Value {
  return g.apply1(transposeOp, [x], { order });
}

const broadcastOp = primitive<{ shape: Shape }>({
  name: "broadcast",
  infer([x], { shape }) {
    const result = broadcastShapes(x!.shape, shape);
    if (result.some((size, axis) => size !== shape[axis])) {
      throw new TypeError(`Cannot broadcast ${formatType(x!)} to [${shape.join(", ")}]`);
    }
    return [{ dtype: x!.dtype, shape }];
  },
});

/** Repeats axes of size 1 (and missing leading ones) until the shape is reached. */
export function broadcast(g: Builder, x: Value, shape: Shape): Value {
  return g.apply1(broadcastOp, [x], { shape });
}

const sliceOp = primitive<{ axis: number; start: number; end: number }>({
  name: "slice",
  infer([x], { axis, start, end }) {
    if (start < 0 || end > x!.shape[axis]! || start > end) {
      throw new TypeError(`Cannot slice ${start}..${end} of axis ${axis} of ${formatType(x!)}`);
    }
    return [{ dtype: x!.dtype, shape: x!.shape.map((n, i) => i === axis ? end - start : n) }];
  },
});

/** Elements `start ≤ i < end` of one axis. */
export function slice(g: Builder, x: Value, axis: number, start: number, end: number): Value {
  return g.apply1(sliceOp, [x], { axis: axisOf(x, axis), start, end });
}

const concatOp = primitive<{ axis: number }>({
  name: "concat",
  infer(inputs, { axis }) {
    const first = inputs[0]!;
    const fits = inputs.every((x) =>
      x.dtype === first.dtype && x.shape.length === first.shape.length &&
      x.shape.every((size, i) => i === axis || size === first.shape[i])
    );
    if (!fits) throw new TypeError(`Cannot join ${inputs.map(formatType).join(" and ")}`);
    const total = inputs.reduce((size, x) => size + x.shape[axis]!, 0);
    return [{ dtype: first.dtype, shape: first.shape.map((n, i) => i === axis ? total : n) }];
  },
});

/** Joins tensors along one axis. */
export function concat(g: Builder, inputs: readonly Value[], axis: number): Value {
  return g.apply1(concatOp, inputs, { axis: axisOf(inputs[0]!, axis) });
}

// ---- indexing ------------------------------------------------------------------------------------

const gatherOp = primitive<{ axis: number }>({
  name: "gather",
  infer([x, indices], { axis }) {
    if (indices!.dtype !== "i32") throw new TypeError(`Cannot index by ${formatType(indices!)}`);
    const shape = [...x!.shape.slice(0, axis), ...indices!.shape, ...x!.shape.slice(axis + 1)];
    return [{ dtype: x!.dtype, shape }];
  },
});

/** Entries of one axis by index; that axis becomes the axes of `indices`. */
export function gather(g: Builder, x: Value, indices: Value, axis: number): Value {
  return g.apply1(gatherOp, [x, indices], { axis: axisOf(x, axis) });
}

const takeLastOp = primitive({
  name: "take_last",
  infer([x, indices]) {
    if (x!.shape.slice(0, -1).join() !== indices!.shape.join() || indices!.dtype !== "i32") {
      throw new TypeError(`Cannot take from ${formatType(x!)} by ${formatType(indices!)}`);
    }
    return [{ dtype: x!.dtype, shape: indices!.shape }];
  },
});

/** One element of each last-axis row: `out[i] = x[i, indices[i]]`. */
export function takeLast(g: Builder, x: Value, indices: Value): Value {
  return g.apply1(takeLastOp, [x, indices], {});
}

const writeSlotsOp = primitive({
  name: "write_slots",
  infer([buffer, update, start]) {
    const [R, K, S, D] = buffer!.shape;
    const fits = update!.shape.length === 4 && update!.shape[0] === R && update!.shape[1] === K &&
      update!.shape[2]! <= S! && update!.shape[3] === D && start!.shape.join() === `${R}`;
    if (!fits) {
      throw new TypeError(
        `Cannot write ${formatType(update!)} into ${formatType(buffer!)} at ${formatType(start!)}`,
      );
    }
    return [buffer!];
  },
  memory: "required",
});

/**
 * Overwrites slots `start[r] …` of axis 2 of row r: buffer [R, K, S, D], update [R, K, T, D],
 * start [R] i32. The result lies in the buffer's own memory.
 */
export function writeSlots(g: Builder, buffer: Value, update: Value, start: Value): Value {
  return g.apply1(writeSlotsOp, [buffer, update, start], {});
}
