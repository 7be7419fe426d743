/**
 * Primitives as launches. They compute in f32 and move elements in whatever type these are.
 */
import type { PrimitiveName } from "../../../graph/primitives.ts";
import { broadcastStrides, denseStrides } from "../../../graph/strides.ts";
import type { Node } from "../../../graph/program.ts";
import { elementBytes, elementCount, type Shape } from "../../../graph/types.ts";
import type { Value } from "../../../graph/value.ts";
import { BINARY, REDUCE, UNARY } from "../kernels/primitive.ts";
import type { Lowering, Rule } from "./lowering.ts";
import { slotWriteOf } from "./rotation.ts";
import { collapse, dense, toDense } from "./strides.ts";

/** Elements of a row that one block folds; longer rows are folded in pieces. */
const CHUNK = 1 << 14;

const unary: Rule = (l, node) => {
  const x = l.wide(node.inputs[0]!);
  return l.launch("unary", {
    reads: { x },
    writes: { y: x },
    numbers: { count: elementCount(x.shape), op: UNARY[node.op.name as keyof typeof UNARY] },
    reuse: "x",
  });
};

/** Sizes and strides of an elementwise kernel, by the names of its arguments. */
function walk(shape: Shape, operands: Readonly<Record<string, Value>>): Record<string, number> {
  const lists = Object.values(operands).map((value) => broadcastStrides(value.shape, shape));
  const { sizes: [, n1, n2, n3], strides } = collapse(shape, lists);
  const numbers: Record<string, number> = { count: elementCount(shape), n1: n1!, n2: n2!, n3: n3! };
  Object.keys(operands).forEach((letter, i) => {
    strides[i]!.forEach((stride, axis) => numbers[`${letter}${axis}`] = stride);
  });
  return numbers;
}

const binary: Rule = (l, node) => {
  const [y] = node.outputs as [Value];
  const ints = y.dtype === "i32";
  const [a, b] = node.inputs.map((value) => ints ? l.get(value) : l.wide(value)) as [Value, Value];
  const target = l.destination(y);
  return l.launch(ints ? "binary_integers" : "binary", {
    reads: { a, b },
    ...(target ? { updates: { y: l.get(target) } } : { writes: { y } }),
    numbers: { ...walk(y.shape, { a, b }), op: BINARY[node.op.name as keyof typeof BINARY] },
    // In place only where a is walked as the result is.
    ...(!target && a.shape.join() === y.shape.join() ? { reuse: "a" } : {}),
  });
};

/** Sums of equal shapes, such as residual streams, are read 16 bytes at a time. */
const add: Rule = (l, node) => {
  const [first, second] = node.inputs as [Value, Value];
  const [y] = node.outputs as [Value];
  if (y.dtype !== "f32" || first.shape.join() !== second.shape.join() || l.destination(y)) {
    return binary(l, node);
  }
  const narrow = [first, second].some((value) => l.get(value).dtype === "bf16");
  const [a, b] = [first, second].map((value) => narrow ? l.element(value) : l.wide(value));
  return l.launch("add", {
    reads: { a, b },
    writes: { y: a! },
    numbers: { count: elementCount(y.shape) },
    macros: { BF16: Number(narrow) },
    reuse: "a",
  });
};

const lessEqual: Rule = (l, { inputs, outputs: [y] }) => {
  const ints = inputs[0]!.dtype === "i32";
  const [a, b] = inputs.map((value) => ints ? l.get(value) : l.wide(value)) as [Value, Value];
  return l.launch(ints ? "less_equal_integers" : "less_equal", {
    reads: { a, b },
    writes: { y: y! },
    numbers: walk(y!.shape, { a, b }),
  });
};

const select: Rule = (l, { inputs, outputs: [y] }) => {
  const condition = l.get(inputs[0]!);
  const [a, b] = inputs.slice(1).map((value) => l.wide(value)) as [Value, Value];
  return l.launch("select_floats", {
    reads: { condition, a, b },
    writes: { y: y! },
    numbers: walk(y!.shape, { c: condition, a, b }),
  });
};

const CASTS: Readonly<Record<string, string>> = {
  "i32 f32": "cast_integers",
  "bool f32": "cast_bools",
  "f32 i32": "truncate_floats",
};

const cast: Rule = (l, { inputs: [x], outputs: [y] }) => {
  // Between floats nothing is to be done before a kernel wants one type or the other.
  if (x!.dtype === "bf16" && y!.dtype === "f32") return [l.get(x!)];
  if (x!.dtype === "f32" && y!.dtype === "bf16") return [l.inType(l.get(x!), "bf16")];
  const entry = CASTS[`${x!.dtype} ${y!.dtype}`];
  if (!entry) throw new TypeError(`cannot cast ${x!.dtype} to ${y!.dtype} on this device`);
  const source = x!.dtype === "f32" ? l.wide(x!) : l.get(x!);
  const numbers = { count: elementCount(y!.shape) };
  return l.launch(entry, { reads: { x: source }, writes: { y: y! }, numbers });
};

const constant: Rule = (l, { attributes, outputs: [y] }) => {
  const list = attributes.data as readonly number[];
  const data = y!.dtype === "i32" ? Int32Array.from(list) : Float32Array.from(list);
  return [l.constant({ dtype: y!.dtype, shape: y!.shape, data })];
};

const iota: Rule = (l, { outputs: [y] }) =>
  l.launch("iota", { writes: { y: y! }, numbers: { count: elementCount(y!.shape) } });

/** Sizes before, of and after an axis. */
function around(shape: Shape, axis: number): [outer: number, size: number, inner: number] {
  return [
    elementCount(shape.slice(0, axis)),
    shape[axis]!,
    elementCount(shape.slice(axis + 1)),
  ];
}

const reduction: Rule = (l, node) => {
  const [source] = node.inputs as [Value];
  const [y] = node.outputs as [Value];
  const [outer, n, inner] = around(source.shape, node.attributes.axis as number);
  const maker = l.maker(source);
  const isSquare = node.op.name === "sum" && maker?.op.name === "mul" &&
    maker.inputs[0] === maker.inputs[1];
  const x = l.wide(isSquare ? maker.inputs[0]! : source);
  const op = isSquare ? REDUCE.squares : node.op.name === "sum" ? REDUCE.sum : REDUCE.max;
  if (inner > 1) {
    return l.launch("reduce_columns", {
      reads: { x },
      writes: { y },
      numbers: { outer, n, inner, op },
    });
  }
  return [foldRows(l, x, { rows: outer, n, op }, y)];
};

/** Folds rows, in as many passes as their length takes. */
function foldRows(
  l: Lowering,
  x: Value,
  { rows, n, op }: { rows: number; n: number; op: number },
  y: Value,
): Value {
  const pieces = Math.ceil(n / CHUNK);
  const type = pieces === 1 ? y : { dtype: y.dtype, shape: [rows, pieces] };
  const numbers = { rows, n, chunk: CHUNK, op };
  const [folded] = l.launch("reduce_rows", { reads: { x }, writes: { y: type }, numbers });
  if (pieces === 1) return folded!;
  const again = op === REDUCE.squares ? REDUCE.sum : op;
  return foldRows(l, folded!, { rows, n: pieces, op: again }, y);
}

const argmax: Rule = (l, { inputs: [source], outputs: [y], attributes }) => {
  const [outer, n, inner] = around(source!.shape, attributes.axis as number);
  let x = l.element(source!);
  if (inner > 1) {
    const shape = [outer, inner, n];
    x = l.copy(x, { dtype: x.dtype, shape }, toDense(shape, [n * inner, 1, inner]));
  }
  const numbers = { N: outer * inner, V: n };
  return l.launch("argmax", { reads: { x }, writes: { index: y! }, numbers });
};

const matmul: Rule = (l, { inputs, outputs: [y], attributes }) => {
  const [a, b] = inputs.map((value) => l.wide(value)) as [Value, Value];
  const { transposeA, transposeB, scale } = attributes as {
    transposeA: boolean;
    transposeB: boolean;
    scale: number;
  };
  const [m, n] = y!.shape.slice(-2) as [number, number];
  const k = a.shape.at(transposeA ? -2 : -1)!;
  const leading = y!.shape.slice(0, -2);
  const batchStrides = (x: Value) => {
    const matrix = x.shape.at(-1)! * x.shape.at(-2)!;
    return broadcastStrides(x.shape.slice(0, -2), leading).map((stride) => stride * matrix);
  };
  const { sizes, strides } = collapse(leading, [batchStrides(a), batchStrides(b)], 3);
  const [aRow, aColumn] = transposeA ? [1, m] : [k, 1];
  const [bRow, bColumn] = transposeB ? [1, k] : [n, 1];
  const numbers: Record<string, number> = {
    ...{ m, n, k, scale, aRow: aRow!, aColumn: aColumn!, bRow: bRow!, bColumn: bColumn! },
    ...{ n1: sizes[1]!, n2: sizes[2]!, batch: elementCount(leading) },
  };
  strides[0]!.forEach((stride, i) => numbers[`a${i}`] = stride);
  strides[1]!.forEach((stride, i) => numbers[`b${i}`] = stride);
  return l.launch("matmul", { reads: { a, b }, writes: { y: y! }, numbers });
};

const view: Rule = (l, { inputs: [x], outputs: [y] }) => [l.view(l.get(x!), y!.shape)];

/** A rule that reads its operand by other strides. */
function moved(strides: (node: Node) => { strides: readonly number[]; first?: number }): Rule {
  return (l, node) => {
    const [y] = node.outputs as [Value];
    const x = l.get(node.inputs[0]!);
    const { strides: list, first } = strides(node);
    return [l.copy(x, { dtype: x.dtype, shape: y.shape }, toDense(y.shape, list, first))];
  };
}

const transpose = moved(({ inputs: [x], attributes }) => {
  const own = denseStrides(x!.shape);
  return { strides: (attributes.order as number[]).map((axis) => own[axis]!) };
});

const broadcast = moved(({ inputs: [x], outputs: [y] }) => ({
  strides: broadcastStrides(x!.shape, y!.shape),
}));

const slice = moved(({ inputs: [x], attributes }) => {
  const strides = denseStrides(x!.shape);
  return { strides, first: (attributes.start as number) * strides[attributes.axis as number]! };
});

const concat: Rule = (l, { inputs, outputs: [y], attributes }) => {
  const axis = attributes.axis as number;
  const narrow = inputs.every((value) => l.get(value).dtype === "bf16");
  const isFloat = y!.dtype === "f32";
  const parts = inputs.map((x) => isFloat && !narrow ? l.wide(x) : l.get(x));
  const strides = denseStrides(y!.shape);
  let start = 0;
  let whole: Value | undefined;
  for (const part of parts) {
    const { sizes, strides: [target, source] } = collapse(
      part.shape,
      [strides, denseStrides(part.shape)],
    );
    whole = l.copy(part, { dtype: part.dtype, shape: y!.shape }, {
      sizes,
      targetFirst: start * strides[axis]!,
      targetStrides: target!,
      sourceFirst: 0,
      sourceStrides: source!,
    }, whole);
    start += part.shape[axis]!;
  }
  return [whole!];
};

const gather: Rule = (l, { inputs, outputs: [y], attributes }) => {
  const [x, indices] = inputs.map((value) => l.get(value)) as [Value, Value];
  const [outer, size, inner] = around(x.shape, attributes.axis as number);
  return l.launch("gather", {
    reads: { x, indices },
    writes: { y: { dtype: x.dtype, shape: y!.shape } },
    numbers: { outer, size, count: elementCount(indices.shape), inner },
    macros: { BYTES: elementBytes(x.dtype) },
  });
};

const takeLast: Rule = (l, { inputs: [x, indices], outputs: [y] }) =>
  l.launch("take_last", {
    reads: { x: l.wide(x!), indices: l.get(indices!) },
    writes: { y: y! },
    numbers: { rows: elementCount(y!.shape), size: x!.shape.at(-1)! },
  });

/** A copy of an operand, to be changed where it lies. */
export function ownCopy(l: Lowering, value: Value): Value {
  const x = l.wide(value);
  return l.copy(x, x, dense(x.shape));
}

const scatterAdd: Rule = (l, { inputs: [x, indices, update], attributes }) => {
  const [outer, size, inner] = around(x!.shape, attributes.axis as number);
  return l.launch("scatter_add", {
    updates: { y: ownCopy(l, x!) },
    reads: { indices: l.get(indices!), update: l.wide(update!) },
    numbers: { outer, size, count: elementCount(indices!.shape), inner },
  });
};

const addLast: Rule = (l, { inputs: [x, indices, update] }) =>
  l.launch("add_last", {
    updates: { y: ownCopy(l, x!) },
    reads: { indices: l.get(indices!), update: l.wide(update!) },
    numbers: { rows: elementCount(indices!.shape), size: x!.shape.at(-1)! },
  });

const assign: Rule = (l, { inputs: [state, value] }) => {
  if (l.liesIn(value!, state!)) return [l.get(value!)];
  const target = l.get(state!);
  const source = target.dtype === "f32" ? l.wide(value!) : l.get(value!);
  return [l.copy(source, source, dense(source.shape), target)];
};

/** Reads the heads where they lie before they are moved behind each other. */
const writeSlots: Rule = (l, node) => {
  const { cache: buffer, start, update, byToken } = slotWriteOf(l, node);
  const [R, K, S, D] = buffer.shape as [number, number, number, number];
  const T = update.shape[byToken ? 1 : 2]!;
  const cache = l.get(buffer);
  const [tokenStride, headStride] = byToken ? [K * D, D] : [D, T * D];
  return l.launch("write_slots", {
    updates: { cache },
    reads: { update: l.inType(l.get(update), cache.dtype as "f32"), start: l.get(start) },
    numbers: {
      ...{ R, starts: start.shape[0]!, T, K, S, D },
      ...{ rowStride: T * K * D, tokenStride, headStride },
    },
    macros: { BF16: Number(cache.dtype === "bf16") },
  });
};

/** One rule for every name of a table. */
function byName<N extends string>(
  names: Readonly<Record<N, unknown>>,
  rule: Rule,
): Record<N, Rule> {
  return Object.fromEntries(Object.keys(names).map((name) => [name, rule])) as Record<N, Rule>;
}

/** Rules by op name. The compiler checks that no primitive is missing. */
export const PRIMITIVE_RULES: Readonly<Record<PrimitiveName, Rule>> = {
  ...byName(UNARY, unary),
  ...byName(BINARY, binary),
  add,
  less_equal: lessEqual,
  select,
  cast,
  constant,
  iota,
  sum: reduction,
  max: reduction,
  argmax,
  matmul,
  reshape: view,
  recompute: view,
  transpose,
  broadcast,
  slice,
  concat,
  gather,
  take_last: takeLast,
  scatter_add: scatterAdd,
  add_last: addLast,
  assign,
  write_slots: writeSlots,
};
