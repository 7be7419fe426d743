/** Reductions over one axis: sums, maxima and their places. */
import text from "../../../../kernels/primitive/reduce.cu" with { type: "text" };
import * as p from "../../../graph/primitives.ts";
import { elementCount, type Shape, type TensorType } from "../../../graph/types.ts";
import type { Value } from "../../../graph/value.ts";
import type { Lowering } from "../lowering.ts";
import { blocks, grid, kernel, kernelFile } from "./define.ts";
import { listRule, type Rule } from "./rule.ts";
import { around } from "./strided.ts";

export const REDUCE = kernelFile("primitive/reduce.cu", text);

const reduceRows = kernel(
  REDUCE,
  "reduce_rows",
  ({ outer, n, chunk }) => grid(256, outer!, blocks(n!, chunk!)),
);
const reduceColumns = kernel(
  REDUCE,
  "reduce_columns",
  ({ outer, n, inner, chunk }) => grid(256, blocks(outer! * inner!, 256), blocks(n!, chunk!)),
);
const argmax = kernel(REDUCE, "argmax", ({ outer }) => grid(512, outer!));

/** Elements of a row that one block folds, and of a column that one thread does. */
const ROW_CHUNK = 1 << 14, COLUMN_CHUNK = 128;

/** Numbers by which the kernels know what to compute. */
const OPS = { sum: 0, max: 1 } as const;

/** The type of a tensor in f32. */
export function f32(...shape: number[]): TensorType {
  return { dtype: "f32", shape };
}

/** Rows and width of a tensor whose last axis is one row. */
export function rowsOf(shape: Shape): [rows: number, width: number] {
  return [elementCount(shape.slice(0, -1)), shape.at(-1)!];
}

/** Folds the middle axis of x, in as many passes as its length takes; the result is f32. */
export function reduce(
  l: Lowering,
  op: keyof typeof OPS,
  x: Value,
  [outer, n, inner]: readonly [outer: number, n: number, inner: number],
  y: TensorType,
): Value {
  const [launched, chunk] = inner === 1
    ? [reduceRows, ROW_CHUNK] as const
    : [reduceColumns, COLUMN_CHUNK] as const;
  const pieces = Math.ceil(n / chunk);
  const [folded] = l.launch(launched, {
    reads: { x },
    writes: { y: pieces === 1 ? y : f32(outer, pieces, inner) },
    scalars: { outer, n, inner, chunk, op: OPS[op] },
    defines: { BF16: Number(x.dtype === "bf16") },
  });
  return pieces === 1 ? folded! : reduce(l, op, folded!, [outer, pieces, inner], y);
}

/** The sum over the first axis of x [rows, …]. */
export function sumRows(l: Lowering, x: Value, rows: number, shape: Shape): Value {
  return reduce(l, "sum", x, [1, rows, elementCount(shape)], f32(...shape));
}

export const REDUCE_RULES: readonly Rule[] = [
  ...(["sum", "max"] as const).map((name) =>
    listRule<{ axis: number }>(
      p[name],
      (l, [x], { axis }, [y]) => [reduce(l, name, l.f32(x), around(x.shape, axis), y)],
    )
  ),
  listRule(p.argmax, (l, [source], { axis }, [index]) => {
    const [outer, n, inner] = around(source.shape, axis);
    const x = l.operand(source);
    const rows = inner === 1
      ? x
      : l.copy(x, { shape: [outer, inner, n], from: { strides: [n * inner, 1, inner] } });
    const scalars = { outer: outer * inner, n };
    return l.launch(argmax, { reads: { x: rows }, writes: { index }, scalars });
  }),
];
