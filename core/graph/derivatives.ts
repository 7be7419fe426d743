/**
 * The derivative of every primitive: from the gradient of its output, those of its inputs.
 *
 * In the equations y is the output, ȳ its gradient, and x̄ the gradient of an input x. A primitive
 * without one passes nothing on, since its result is a whole number, a constant or a choice. A
 * broadcast input gets the sum over all the places it was broadcast to.
 */
import type { AttributesOf, PrimitiveName } from "./primitives.ts";
import type { Attributes, Operands, RulesByName, Shape } from "./types.ts";
import { concat as join, type Value } from "./value.ts";

/** Gradients of a node's inputs from that of its output y; see `Op.vjp`. */
type Derivative<A extends Attributes = Attributes> = (
  dy: Value,
  inputs: Operands<Value>,
  attributes: A,
  y: Value,
) => readonly (Value | undefined)[];

/** The derivative of the primitive `N`. */
type DerivativeOf<N extends PrimitiveName> = Derivative<AttributesOf<N>>;

/** Sums the axes of a gradient that were repeated from `shape`. */
export function unbroadcast(gradient: Value, shape: Shape): Value {
  const missing = gradient.shape.length - shape.length;
  let result = gradient;
  gradient.shape.forEach((size, axis) => {
    const own = axis < missing ? 1 : shape[axis - missing];
    if (own === 1 && size !== 1) result = result.sum(axis);
  });
  return result.shape.join() === shape.join() ? result : result.reshape(shape);
}

/** A derivative of one elementwise input: x̄ from ȳ, x and y. */
function unary(rule: (dy: Value, x: Value, y: Value) => Value): Derivative {
  return (dy, [x], _, y) => [rule(dy, x, y)];
}

/** Derivatives of two elementwise inputs, before broadcasting is undone. */
function binary(
  rule: (dy: Value, a: Value, b: Value, y: Value) => readonly [Value, Value],
): Derivative {
  return (dy, [a, b], _, y) => {
    const [da, db] = rule(dy, a, b, y);
    return [unbroadcast(da, a.shape), unbroadcast(db, b.shape)];
  };
}

const zerosLike = (x: Value) => x.graph.constant(0).broadcast(x.shape);

/** y = s·A·B: Ā = s·ȳ·Bᵀ and B̄ = s·Aᵀ·ȳ, each turned as its factor is stored. */
const matmul: DerivativeOf<"matmul"> = (dy, [a, b], { transposeA, transposeB, scale }) => {
  const da = transposeA
    ? b.matmul(dy, { transposeA: transposeB, transposeB: true, scale })
    : dy.matmul(b, { transposeB: !transposeB, scale });
  const db = transposeB
    ? dy.matmul(a, { transposeA: true, transposeB: transposeA, scale })
    : a.matmul(dy, { transposeA: !transposeA, scale });
  return [unbroadcast(da, a.shape), unbroadcast(db, b.shape)];
};

/** The largest elements share the gradient, so that equal ones are treated alike. */
const max: DerivativeOf<"max"> = (dy, [x], { axis }, y) => {
  const ones = y.lessEqual(x).select(1, 0);
  return [ones.mul(dy.div(ones.sum(axis)))];
};

const select: Derivative = (dy, [condition, a, b]) => [
  undefined,
  unbroadcast(condition.select(dy, 0), a.shape),
  unbroadcast(condition.select(0, dy), b.shape),
];

/** Zeros around the slice, in place of what it left out. */
const slice: DerivativeOf<"slice"> = (dy, [x], { axis, start, end }) => {
  const zeros = (size: number) =>
    x.graph.constant(0).broadcast(x.shape.map((n, i) => i === axis ? size : n));
  const rest = x.shape[axis]! - end;
  const parts = [...(start > 0 ? [zeros(start)] : []), dy, ...(rest > 0 ? [zeros(rest)] : [])];
  return [join(parts, axis)];
};

const concat: DerivativeOf<"concat"> = (dy, inputs, { axis }) => {
  let end = 0;
  return inputs.map((x) => {
    const start = end;
    end += x.shape[axis]!;
    return dy.slice(axis, start, end);
  });
};

/** The compiler checks that no primitive is missing; through some no gradient passes. */
const PRIMITIVES: { readonly [N in PrimitiveName]: DerivativeOf<N> | undefined } = {
  add: binary((dy) => [dy, dy]),
  sub: binary((dy) => [dy, dy.mul(-1)]),
  mul: binary((dy, a, b) => [dy.mul(b), dy.mul(a)]),
  div: binary((dy, _a, b, y) => {
    const da = dy.div(b);
    return [da, da.mul(y).mul(-1)]; // ∂(a/b)/∂b = −(a/b)/b
  }),
  select,
  exp: unary((dy, _, y) => dy.mul(y)),
  log: unary((dy, x) => dy.div(x)),
  sqrt: unary((dy, _, y) => dy.div(y.mul(2))),
  sin: unary((dy, x) => dy.mul(x.cos())),
  cos: unary((dy, x) => dy.mul(x.sin()).mul(-1)),
  // σ' = σ (1 − σ)
  sigmoid: unary((dy, _, y) => dy.mul(y.mul(y.graph.constant(1).sub(y)))),
  sum: unary((dy, x) => dy.broadcast(x.shape)),
  max,
  matmul,
  reshape: unary((dy, x) => dy.reshape(x.shape)),
  transpose: (dy, _, { order }) => [dy.transpose(order.map((_, axis) => order.indexOf(axis)))],
  broadcast: unary((dy, x) => unbroadcast(dy, x.shape)),
  recompute: (dy) => [dy],
  slice,
  concat,
  gather: (dy, [x, indices], { axis }) => [zerosLike(x).scatterAdd(indices, dy, axis), undefined],
  take_last: (dy, [x, indices]) => [zerosLike(x).addLast(indices, dy), undefined],
  scatter_add: (dy, [, indices], { axis }) => [dy, undefined, dy.gather(indices, axis)],
  add_last: (dy, [, indices]) => [dy, undefined, dy.takeLast(indices)],
  less_equal: undefined, // a choice
  argmax: undefined, // a whole number
  cast: undefined, // from or to whole numbers
  constant: undefined,
  iota: undefined,
  assign: undefined, // state is written, not computed with
  write_slots: undefined,
};

/** Derivatives by the name of the primitive. */
export const DERIVATIVES: Partial<RulesByName<Derivative>> = PRIMITIVES;
