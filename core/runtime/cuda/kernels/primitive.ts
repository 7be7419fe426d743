/** Kernels of the primitives: any program runs on them, only slower than on model ops. */
import { blocks, each, type Kernel, kernelsOf, spread } from "./define.ts";

const elementwise = kernelsOf("primitive/elementwise.cu");
const cast = kernelsOf("primitive/cast.cu");
const movement = kernelsOf("primitive/movement.cu");
const reduce = kernelsOf("primitive/reduce.cu");
const indexing = kernelsOf("primitive/indexing.cu");
const matmul = kernelsOf("primitive/matmul.cu");

/** Numbers by which `unary` knows what to compute. */
export const UNARY: Readonly<Record<"exp" | "log" | "sqrt" | "sin" | "cos" | "sigmoid", number>> = {
  exp: 0,
  log: 1,
  sqrt: 2,
  sin: 3,
  cos: 4,
  sigmoid: 5,
};

/** Numbers by which `binary` knows what to compute. */
export const BINARY: Readonly<Record<"add" | "sub" | "mul" | "div", number>> = {
  add: 0,
  sub: 1,
  mul: 2,
  div: 3,
};

/** Numbers by which the reductions know what to compute. */
export const REDUCE = { sum: 0, max: 1, squares: 2 } as const;

const all = ({ count }: Record<string, number>) => each(count!);
const operands = "n1 n2 n3 a0 a1 a2 a3 b0 b1 b2 b3";

/** File by file. */
export const PRIMITIVE: readonly Kernel[] = [
  elementwise("unary *y *x count:i64 op", "exp", all),
  elementwise(`binary *y *a *b count:i64 op ${operands}`, "mul", all),
  elementwise(`binary_integers *y *a *b count:i64 op ${operands}`, "sub", all),
  elementwise(`less_equal *y *a *b count:i64 ${operands}`, "less_equal", all),
  elementwise(`less_equal_integers *y *a *b count:i64 ${operands}`, "less_equal", all),
  elementwise(
    "select_floats *y *condition *a *b count:i64 n1 n2 n3 c0 c1 c2 c3 a0 a1 a2 a3 b0 b1 b2 b3",
    "select",
    all,
  ),
  cast("narrow_floats *y *x count:i64", "cast", all),
  cast("widen_elements *y *x count:i64", "cast", all),
  cast("cast_integers *y *x count:i64", "cast", all),
  cast("cast_bools *y *x count:i64", "cast", all),
  cast("truncate_floats *y *x count:i64", "cast", all),
  cast("iota *y count:i64", "iota", all),
  movement(
    "copy *y *x count:i64 n1 n2 n3 yFirst:i64 y0 y1 y2 y3 xFirst:i64 x0 x1 x2 x3",
    "transpose",
    all,
  ),
  movement(
    "gather *y *x *indices outer size count inner",
    "gather",
    ({ outer, count, inner }) => each(outer! * count! * inner!),
  ),
  reduce(
    "reduce_rows *y *x rows n:i64 chunk op",
    "sum",
    ({ rows, n, chunk }) => spread(256, rows!, blocks(n!, chunk!)),
  ),
  reduce(
    "reduce_columns *y *x outer n inner op",
    "max",
    ({ outer, inner }) => each(outer! * inner!),
  ),
  indexing(
    "take_last *y *x *indices rows size",
    "take_last",
    ({ rows }) => each(rows!, 1, 128),
  ),
  indexing(
    "add_last *y *indices *update rows size",
    "add_last",
    ({ rows }) => each(rows!, 1, 128),
  ),
  indexing(
    "scatter_add *y *indices *update outer size count inner",
    "scatter_add",
    ({ outer, count }) => spread(128, count!, outer!),
  ),
  matmul(
    "matmul *y *a *b m n k aRow aColumn bRow bColumn n1 n2 a0 a1 a2 b0 b1 b2 scale:f32",
    "matmul",
    ({ m, n, batch }) => spread(256, blocks(n!, 16), blocks(m!, 16), batch!),
  ),
];
