/**
 * TensorFlow's ops for every primitive: one each, or a few where it has no such op.
 *
 * Each rule returns a new tensor of the node's shape. TensorFlow.js broadcasts the leading axes of
 * a matrix product wrongly on some of its backends, and TensorFlow does not promise which of
 * several equal elements `argMax` finds; both are seen to here.
 */
import type { AttributesOf, PrimitiveName } from "../../graph/primitives.ts";
import type { Node } from "../../graph/program.ts";
import {
  type Attributes,
  elementCount,
  type Operands,
  type RulesByName,
} from "../../graph/types.ts";
import { type Tensor, type TensorFlow, tensorType } from "./storage.ts";

type Evaluate<A extends Attributes = Attributes> = (
  tf: TensorFlow,
  inputs: Operands<Tensor>,
  attributes: A,
  shape: number[],
) => Tensor;

/** The rule of the primitive `N`. */
type EvaluateOf<N extends PrimitiveName> = Evaluate<AttributesOf<N>>;

type Name = "exp" | "log" | "sqrt" | "sin" | "cos" | "sigmoid";
type BinaryName = "add" | "sub" | "mul" | "lessEqual";

const unary = (name: Name): Evaluate => (tf, [x]) => tf[name](x);
const binary = (name: BinaryName): Evaluate => (tf, [a, b]) => tf[name](a, b);
const copy: Evaluate = (tf, [x], _, shape) => tf.reshape(x, shape);

const divide: Evaluate = (tf, [a, b]) => {
  const quotient = tf.div(a, b);
  if (quotient.dtype !== "int32") return quotient;
  // TensorFlow rounds quotients of integers down; ours are truncated.
  const isTooLow = tf.logicalAnd(tf.less(quotient, 0), tf.notEqual(tf.mul(quotient, b), a));
  return tf.add(quotient, tf.cast(isTooLow, "int32"));
};

const constant: EvaluateOf<"constant"> = (tf, _, { dtype, data }, shape) =>
  tf.tensor([...data], shape, tensorType(dtype));

const argmax: EvaluateOf<"argmax"> = (tf, [x], { axis }, shape) => {
  const size = x.shape[axis]!;
  // Falls along the axis, so that among equal elements the first has the largest number.
  const falling = tf.reshape(
    tf.range(size, 0, -1, "int32"),
    x.shape.map((_, i) => i === axis ? size : 1),
  );
  const isLargest = tf.greaterEqual(x, tf.max(x, axis, true));
  const ranked = tf.where(isLargest, falling, tf.zerosLike(falling));
  return tf.reshape(tf.argMax(ranked, axis), shape);
};

const matmul: EvaluateOf<"matmul"> = (tf, [a, b], { transposeA, transposeB, scale }, shape) => {
  const leading = (x: Tensor) => x.shape.slice(0, -2);
  const batch = shape.slice(0, -2);
  const repeat = (x: Tensor) =>
    leading(x).join() === batch.join() ? x : tf.broadcastTo(x, [...batch, ...x.shape.slice(-2)]);
  const sides: [Tensor, Tensor] = elementCount(leading(b)) === 1 && !transposeA
    ? [tf.reshape(a, [-1, a.shape.at(-1)!]), tf.reshape(b, b.shape.slice(-2))] // one matrix
    : [repeat(a), repeat(b)];
  const product = tf.matMul(...sides, transposeA, transposeB);
  return tf.reshape(scale === 1 ? product : tf.mul(product, scale), shape);
};

const slice: EvaluateOf<"slice"> = (tf, [x], { axis, start }, shape) =>
  tf.slice(x, shape.map((_, i) => i === axis ? start : 0), shape);

const takeLast: Evaluate = (tf, [x, indices], _, shape) => {
  const rows = elementCount(shape);
  const at = tf.reshape(indices, [rows, 1]);
  const taken = tf.gather(tf.reshape(x, [rows, x.shape.at(-1)!]), at, 1, 1);
  return tf.reshape(taken, shape);
};

const scatterAdd: EvaluateOf<"scatter_add"> = (tf, [x, indices, update], { axis }, shape) => {
  const outer = elementCount(shape.slice(0, axis));
  const inner = elementCount(shape.slice(axis + 1));
  const [size, count] = [shape[axis]!, indices.size];
  // TensorFlow scatters along the first axis.
  const first = tf.transpose(tf.reshape(update, [outer, count, inner]), [1, 0, 2]);
  const sums = tf.scatterND(tf.reshape(indices, [count, 1]), first, [size, outer, inner]);
  return tf.add(x, tf.reshape(tf.transpose(sums, [1, 0, 2]), shape));
};

const addLast: Evaluate = (tf, [x, indices, update], _, shape) => {
  const rows = indices.size;
  const at = tf.stack([tf.range(0, rows, 1, "int32"), tf.reshape(indices, [rows])], 1);
  const sums = tf.scatterND(at, tf.reshape(update, [rows]), [rows, shape.at(-1)!]);
  return tf.add(x, tf.reshape(sums, shape));
};

const writeSlots: Evaluate = (tf, [buffer, update, start], _, shape) => {
  const [R, K, S, D] = shape as [number, number, number, number];
  const T = update.shape[2]!;
  const grid = [R, K, T]; // one entry for each slot that is written
  const rows = tf.reshape(tf.range(0, R * K, 1, "int32"), [R, K, 1]);
  const slots = tf.add(tf.reshape(start, [R, 1, 1]), tf.range(0, T, 1, "int32"));
  const at = tf.stack([rows, slots].map((x) => tf.reshape(tf.broadcastTo(x, grid), [-1])), 1);
  const [old, fresh] = [tf.reshape(buffer, [R * K, S, D]), tf.reshape(update, [R * K * T, D])];
  return tf.reshape(tf.tensorScatterUpdate(old, at, fresh), shape);
};

/** The rule of each primitive; the compiler checks that none is missing. */
const PRIMITIVES: { readonly [N in PrimitiveName]: EvaluateOf<N> } = {
  add: binary("add"),
  sub: binary("sub"),
  mul: binary("mul"),
  div: divide,
  less_equal: binary("lessEqual"),
  select: (tf, [condition, a, b]) => tf.where(condition, a, b),
  exp: unary("exp"),
  log: unary("log"),
  sqrt: unary("sqrt"),
  sin: unary("sin"),
  cos: unary("cos"),
  sigmoid: unary("sigmoid"),
  cast: (tf, [x], { dtype }) => tf.cast(x, tensorType(dtype)),
  constant,
  iota: (tf, _, { length }) => tf.range(0, length, 1, "int32"),
  sum: (tf, [x], { axis }) => tf.sum(x, axis, true),
  max: (tf, [x], { axis }) => tf.max(x, axis, true),
  argmax,
  matmul,
  reshape: copy,
  recompute: copy,
  transpose: (tf, [x], { order }) => tf.transpose(x, [...order]),
  broadcast: (tf, [x], _, shape) => tf.broadcastTo(x, shape),
  slice,
  concat: (tf, inputs, { axis }) => tf.concat([...inputs], axis),
  gather: (tf, [x, indices], { axis }) => tf.gather(x, indices, axis),
  take_last: takeLast,
  scatter_add: scatterAdd,
  add_last: addLast,
  assign: (tf, [, value], _, shape) => tf.reshape(value, shape),
  write_slots: writeSlots,
};

const EVALUATE: RulesByName<Evaluate> = PRIMITIVES;

/** The result of a node from its inputs; it belongs to the caller's scope, nothing else is left. */
export function evaluate(tf: TensorFlow, node: Node, inputs: readonly Tensor[]): Tensor {
  const rule = EVALUATE[node.op.name];
  if (!rule) throw new TypeError(`cannot evaluate "${node.op.name}": not a primitive`);
  const { shape } = node.outputs[0]!;
  return tf.tidy(() => rule(tf, inputs as Operands<Tensor>, node.attributes, [...shape]));
}
