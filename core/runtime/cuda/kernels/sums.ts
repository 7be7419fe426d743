/** Sums over rows: partial sums of blocks of rows, then their sum in order. */
import text from "../../../../kernels/backward/linear.cu" with { type: "text" };
import { elementCount, type Shape, type TensorType } from "../../../graph/types.ts";
import type { Value } from "../../../graph/value.ts";
import type { Lowering } from "../lowering.ts";
import { blocks, each, grid, kernel, kernelFile } from "./define.ts";

/** Rows of which one block makes a partial sum. */
export const PARTIAL_ROWS = 64;

export const SUMS = kernelFile("backward/linear.cu", text);

const biasPartials = kernel(
  SUMS,
  "bias_partials *partial *dy rows N",
  ({ rows, N }) => grid(128, blocks(N!, 128), blocks(rows!, PARTIAL_ROWS)),
);
const sumOfPartials = kernel(
  SUMS,
  "sum_partials *sum *partial chunks N",
  ({ N }) => each(N!, 1, 128),
);

/** The type of a tensor in f32. */
export function f32(...shape: number[]): TensorType {
  return { dtype: "f32", shape };
}

/** Rows and width of a tensor whose last axis is one row. */
export function rowsOf(shape: Shape): [rows: number, width: number] {
  return [elementCount(shape.slice(0, -1)), shape.at(-1)!];
}

/** The sum over the rows of dy [rows, N], in f32. */
export function sumRows(l: Lowering, dy: Value): Value {
  const [rows, N] = rowsOf(dy.shape);
  const [partial] = l.launch(biasPartials, {
    reads: { dy },
    writes: { partial: f32(Math.ceil(rows / PARTIAL_ROWS), N) },
    scalars: { rows, N },
  });
  return sumPartials(l, partial!);
}

/** The sum over rows of partial sums that a kernel made, in order. */
export function sumPartials(l: Lowering, partial: Value): Value {
  const [chunks, N] = partial.shape as [number, number];
  return l.launch(sumOfPartials, {
    reads: { partial },
    writes: { sum: f32(N) },
    scalars: { chunks, N },
  })[0]!;
}
