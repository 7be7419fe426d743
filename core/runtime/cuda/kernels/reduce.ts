/** Reductions over one axis. */
import text from "../../../../kernels/primitive/reduce.cu" with { type: "text" };
import * as p from "../../../graph/primitives.ts";
import type { Value } from "../../../graph/value.ts";
import type { Lowering } from "../lowering.ts";
import { around } from "../strides.ts";
import { blocks, each, grid, kernel, kernelFile } from "./define.ts";
import { listRule, type Rule } from "./rule.ts";

export const REDUCE = kernelFile("primitive/reduce.cu", text, [{ BF16: 0 }]);

const reduceRows = kernel(
  REDUCE,
  "reduce_rows *y *x rows n:i64 chunk op",
  ({ rows, n, chunk }) => grid(256, rows!, blocks(n!, chunk!)),
);
const reduceColumns = kernel(
  REDUCE,
  "reduce_columns *y *x outer n inner op",
  ({ outer, inner }) => each(outer! * inner!),
);

/** Elements of a row that one block folds; longer rows are folded in pieces. */
const CHUNK = 1 << 14;

/** Numbers by which the kernels know what to compute. */
const OPS = { sum: 0, max: 1 } as const;

function reduction(op: typeof p.sum | typeof p.max, name: keyof typeof OPS): Rule {
  return listRule<{ axis: number }>(op, (l, [source], { axis }, [y]) => {
    const [outer, n, inner] = around(source.shape, axis);
    const x = l.f32(source);
    if (inner === 1) return [foldRows(l, x, { rows: outer, n, op: OPS[name] }, y)];
    const scalars = { outer, n, inner, op: OPS[name] };
    return l.launch(reduceColumns, { reads: { x }, writes: { y }, scalars });
  });
}

/** Folds rows, in as many passes as their length takes. */
function foldRows(
  l: Lowering,
  x: Value,
  { rows, n, op }: { readonly rows: number; readonly n: number; readonly op: number },
  y: Value,
): Value {
  const pieces = Math.ceil(n / CHUNK);
  const type = pieces === 1 ? y : { dtype: y.dtype, shape: [rows, pieces] };
  const scalars = { rows, n, chunk: CHUNK, op };
  const [folded] = l.launch(reduceRows, { reads: { x }, writes: { y: type }, scalars });
  return pieces === 1 ? folded! : foldRows(l, folded!, { rows, n: pieces, op }, y);
}

export const SUM: Rule = reduction(p.sum, "sum");
export const MAX: Rule = reduction(p.max, "max");
