/** Products of matrices of any kind; those of layers are in `linear.ts`. */
import text from "../../../../kernels/primitive/matmul.cu" with { type: "text" };
import * as p from "../../../graph/primitives.ts";
import { broadcastStrides } from "../../../graph/strides.ts";
import { elementCount } from "../../../graph/types.ts";
import type { Value } from "../../../graph/value.ts";
import { blocks, grid, kernel, kernelFile } from "./define.ts";
import { listRule, type Rule } from "./rule.ts";
import { collapse, named } from "./strided.ts";

export const MATMUL = kernelFile("primitive/matmul.cu", text, [{}]);

const matmul = kernel(
  MATMUL,
  "matmul",
  ({ m, n, batch }) => grid(256, blocks(n!, 16), blocks(m!, 16), batch!),
);

export const MATMUL_RULES: readonly Rule[] = [listRule(p.matmul, (l, inputs, attributes, [y]) => {
  const { transposeA, transposeB, scale } = attributes;
  const a = l.f32(inputs[0]), b = l.f32(inputs[1]);
  const [m, n] = y.shape.slice(-2) as [number, number];
  const k = a.shape.at(transposeA ? -2 : -1)!;
  const leading = y.shape.slice(0, -2);
  const batchStrides = (x: Value) => {
    const matrix = x.shape.at(-1)! * x.shape.at(-2)!;
    return broadcastStrides(x.shape.slice(0, -2), leading).map((stride) => stride * matrix);
  };
  const { sizes, strides } = collapse(leading, [batchStrides(a), batchStrides(b)], 3);
  const [aRow, aColumn] = transposeA ? [1, m] as const : [k, 1] as const;
  const [bRow, bColumn] = transposeB ? [1, k] as const : [n, 1] as const;
  const scalars = {
    ...{ m, n, k, scale, aRow, aColumn, bRow, bColumn },
    ...{ n1: sizes[1]!, n2: sizes[2]!, batch: elementCount(leading) },
    ...named("a", strides[0]!),
    ...named("b", strides[1]!),
  };
  return l.launch(matmul, { reads: { a, b }, writes: { y }, scalars });
})];
