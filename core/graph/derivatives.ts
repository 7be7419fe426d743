/**
 * The derivative of every primitive: from the gradient of its output, those of its inputs.
 *
 * In the equations y is the output, ȳ its gradient, and x̄ the gradient of an input x. A primitive
 * without an entry passes nothing on, since its result is a whole number, a constant or a choice. A
 * broadcast input gets the sum over all the places it was broadcast to.
 */
import type { Builder } from "./builder.ts";
import * as p from "./primitives.ts";
import type { Node, Shape, Value } from "./types.ts";

/** See `Op.vjp`. */
type Derivative = (g: Builder, node: Node, upstream: Value) => readonly (Value | undefined)[];

/** Sums the axes of a gradient that were repeated from `shape`. */
export function unbroadcast(g: Builder, gradient: Value, shape: Shape): Value {
  const missing = gradient.shape.length - shape.length;
  let result = gradient;
  gradient.shape.forEach((size, axis) => {
    const own = axis < missing ? 1 : shape[axis - missing];
    if (own === 1 && size !== 1) result = p.sum(g, result, axis);
  });
  return result.shape.join() === shape.join() ? result : p.reshape(g, result, shape);
}

const scaled = (g: Builder, x: Value, factor: number) => p.mul(g, x, p.constant(g, factor));

/** A derivative of one elementwise input: x̄ from ȳ, x and y. */
function unary(
  rule: (g: Builder, upstream: Value, x: Value, y: Value) => Value,
): Derivative {
  return (g, { inputs, outputs }, upstream) => [rule(g, upstream, inputs[0]!, outputs[0]!)];
}

/** Derivatives of two elementwise inputs, before broadcasting is undone. */
function binary(
  rule: (g: Builder, upstream: Value, a: Value, b: Value, y: Value) => readonly [Value, Value],
): Derivative {
  return (g, { inputs: [a, b], outputs: [y] }, upstream) => {
    const [da, db] = rule(g, upstream, a!, b!, y!);
    return [unbroadcast(g, da, a!.shape), unbroadcast(g, db, b!.shape)];
  };
}

/** y = s·A·B: Ā = s·ȳ·Bᵀ and B̄ = s·Aᵀ·ȳ, each turned as its factor is stored. */
const matmul: Derivative = (g, { inputs: [a, b], attributes }, upstream) => {
  const { transposeA, transposeB, scale } = attributes as {
    transposeA: boolean;
    transposeB: boolean;
    scale: number;
  };
  const da = transposeA
    ? p.matmul(g, b!, upstream, { transposeA: transposeB, transposeB: true, scale })
    : p.matmul(g, upstream, b!, { transposeB: !transposeB, scale });
  const db = transposeB
    ? p.matmul(g, upstream, a!, { transposeA: true, transposeB: transposeA, scale })
    : p.matmul(g, a!, upstream, { transposeA: !transposeA, scale });
  return [unbroadcast(g, da, a!.shape), unbroadcast(g, db, b!.shape)];
};

/** The largest elements share the gradient, so that equal ones are treated alike. */
const max: Derivative = (g, { inputs: [x], outputs: [y], attributes }, upstream) => {
  const isLargest = p.lessEqual(g, y!, x!);
  const ones = p.select(g, isLargest, p.constant(g, 1), p.constant(g, 0));
  const count = p.sum(g, ones, attributes.axis as number);
  return [p.mul(g, ones, p.div(g, upstream, count))];
};

const select: Derivative = (g, { inputs: [condition, a, b] }, upstream) => {
  const zero = p.constant(g, 0);
  return [
    undefined,
    unbroadcast(g, p.select(g, condition!, upstream, zero), a!.shape),
    unbroadcast(g, p.select(g, condition!, zero, upstream), b!.shape),
  ];
};

/** Zeros around the slice, in place of what it left out. */
const slice: Derivative = (g, { inputs: [x], attributes }, upstream) => {
  const { axis, start, end } = attributes as { axis: number; start: number; end: number };
  const zeros = (size: number) =>
    p.broadcast(g, p.constant(g, 0), x!.shape.map((n, i) => i === axis ? size : n));
  const rest = x!.shape[axis]! - end;
  const before = start > 0 ? [zeros(start)] : [];
  return [p.concat(g, [...before, upstream, ...(rest > 0 ? [zeros(rest)] : [])], axis)];
};

const concat: Derivative = (g, { inputs, attributes }, upstream) => {
  const axis = attributes.axis as number;
  let end = 0;
  return inputs.map((x) => {
    const start = end;
    end += x.shape[axis]!;
    return p.slice(g, upstream, axis, start, end);
  });
};

const gather: Derivative = (g, { inputs: [x, indices], attributes }, upstream) => {
  const zeros = p.broadcast(g, p.constant(g, 0), x!.shape);
  return [p.scatterAdd(g, zeros, indices!, upstream, attributes.axis as number), undefined];
};

const takeLast: Derivative = (g, { inputs: [x, indices] }, upstream) => {
  const zeros = p.broadcast(g, p.constant(g, 0), x!.shape);
  return [p.addLast(g, zeros, indices!, upstream), undefined];
};

/** Derivatives by the name of the primitive. */
export const DERIVATIVES: Readonly<Record<string, Derivative>> = {
  add: binary((_, dy) => [dy, dy]),
  sub: binary((g, dy) => [dy, scaled(g, dy, -1)]),
  mul: binary((g, dy, a, b) => [p.mul(g, dy, b), p.mul(g, dy, a)]),
  div: binary((g, dy, _a, b, y) => {
    const da = p.div(g, dy, b);
    return [da, scaled(g, p.mul(g, da, y), -1)]; // ∂(a/b)/∂b = −(a/b)/b
  }),
  select,
  exp: unary((g, dy, _, y) => p.mul(g, dy, y)),
  log: unary((g, dy, x) => p.div(g, dy, x)),
  sqrt: unary((g, dy, _, y) => p.div(g, dy, scaled(g, y, 2))),
  sin: unary((g, dy, x) => p.mul(g, dy, p.cos(g, x))),
  cos: unary((g, dy, x) => scaled(g, p.mul(g, dy, p.sin(g, x)), -1)),
  // σ' = σ (1 − σ)
  sigmoid: unary((g, dy, _, y) => p.mul(g, dy, p.mul(g, y, p.sub(g, p.constant(g, 1), y)))),
  sum: unary((g, dy, x) => p.broadcast(g, dy, x.shape)),
  max,
  matmul,
  reshape: unary((g, dy, x) => p.reshape(g, dy, x.shape)),
  transpose: (g, { attributes }, dy) => {
    const order = attributes.order as readonly number[];
    return [p.transpose(g, dy, order.map((_, axis) => order.indexOf(axis)))];
  },
  broadcast: unary((g, dy, x) => unbroadcast(g, dy, x.shape)),
  recompute: (_g, _node, dy) => [dy],
  slice,
  concat,
  gather,
  take_last: takeLast,
  scatter_add: (g, { inputs: [, indices], attributes }, dy) => [
    dy,
    undefined,
    p.gather(g, dy, indices!, attributes.axis as number),
  ],
  add_last: (g, { inputs: [, indices] }, dy) => [dy, undefined, p.takeLast(g, dy, indices!)],
};

/** Primitives through which no gradient passes. */
export const WITHOUT_DERIVATIVE: ReadonlySet<string> = new Set([
  "less_equal", // a choice
  "argmax", // a whole number
  "cast", // from or to whole numbers
  "constant",
  "iota",
  "assign", // state is written, not computed with
  "write_slots",
]);
