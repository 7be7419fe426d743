/** Reductions over one axis. */
import text from "../../../../kernels/primitive/reduce.cu" with { type: "text" };
import * as p from "../../../graph/primitives.ts";
import type { Value } from "../../../graph/value.ts";
import { sumSquares } from "../fuse/squares.ts";
import type { Lowering } from "../lowering.ts";
import { around } from "../strides.ts";
import { blocks, each, kernel, kernelFile, spread } from "./define.ts";
import { listRule, type Rule } from "./rule.ts";

export const REDUCE = kernelFile("primitive/reduce.cu", text, [{ BF16: 0 }]);

const reduceRows = kernel(
  REDUCE,
  "reduce_rows *y *x rows n:i64 chunk op",
  ({ rows, n, chunk }) => spread(256, rows!, blocks(n!, chunk!)),
);
const reduceColumns = kernel(
  REDUCE,
  "reduce_columns *y *x outer n inner op",
  ({ outer, inner }) => each(outer! * inner!),
);

/** Elements of a row that one block folds; longer rows are folded in pieces. */
const CHUNK = 1 << 14;

/** Numbers by which the kernels know what to compute. */
const OPS = { sum: 0, max: 1, squares: 2 } as const;

/** The rule of a reduction; results of pieces are folded by `again`. */
function reduction(
  op: typeof p.sum | typeof p.max | typeof sumSquares.op,
  name: keyof typeof OPS,
  again = name,
): Rule {
  return listRule<{ axis: number }>(op, (l, [source], { axis }, [y]) => {
    const [outer, n, inner] = around(source.shape, axis);
    const x = l.wide(source);
    if (inner === 1) return [foldRows(l, x, { rows: outer, n, names: [name, again] }, y)];
    const numbers = { outer, n, inner, op: OPS[name] };
    return l.launch(reduceColumns, { reads: { x }, writes: { y }, numbers });
  });
}

/** Folds rows, in as many passes as their length takes. */
function foldRows(
  l: Lowering,
  x: Value,
  { rows, n, names: [name, again] }: {
    readonly rows: number;
    readonly n: number;
    readonly names: readonly [keyof typeof OPS, keyof typeof OPS];
  },
  y: Value,
): Value {
  const pieces = Math.ceil(n / CHUNK);
  const type = pieces === 1 ? y : { dtype: y.dtype, shape: [rows, pieces] };
  const numbers = { rows, n, chunk: CHUNK, op: OPS[name] };
  const [folded] = l.launch(reduceRows, { reads: { x }, writes: { y: type }, numbers });
  return pieces === 1
    ? folded!
    : foldRows(l, folded!, { rows, n: pieces, names: [again, again] }, y);
}

export const SUM: Rule = reduction(p.sum, "sum");
export const MAX: Rule = reduction(p.max, "max");
export const SUM_SQUARES: Rule = reduction(sumSquares.op, "squares", "sum");
