/** Primitives that take and add by index. */
import text from "../../../../kernels/primitive/indexing.cu" with { type: "text" };
import * as p from "../../../graph/primitives.ts";
import { elementCount } from "../../../graph/types.ts";
import { around } from "../strides.ts";
import { each, grid, kernel, kernelFile } from "./define.ts";
import { ownCopy } from "./movement.ts";
import { listRule, type Rule } from "./rule.ts";

export const INDEXING = kernelFile("primitive/indexing.cu", text, [{}]);

const byRow = ({ rows }: Record<string, number>) => each(rows!, 1, 128);

const takeLast = kernel(INDEXING, "take_last *y *x *indices rows size", byRow);
const addLast = kernel(INDEXING, "add_last *y *indices *update rows size", byRow);
/** Adds rows of `update` where they belong, in order. */
export const scatterAdd = kernel(
  INDEXING,
  "scatter_add *y *indices *update outer size count inner",
  ({ outer, count }) => grid(128, count!, outer!),
);

export const TAKE_LAST: Rule = listRule(
  p.takeLast,
  (l, [x, indices], _, [y]) =>
    l.launch(takeLast, {
      reads: { x: l.f32(x), indices: l.get(indices) },
      writes: { y },
      scalars: { rows: elementCount(y.shape), size: x.shape.at(-1)! },
    }),
);

export const ADD_LAST: Rule = listRule(p.addLast, (l, [x, indices, update]) =>
  l.launch(addLast, {
    updates: { y: ownCopy(l, x) },
    reads: { indices: l.get(indices), update: l.f32(update) },
    scalars: { rows: elementCount(indices.shape), size: x.shape.at(-1)! },
  }));

export const SCATTER_ADD: Rule = listRule(p.scatterAdd, (l, [x, indices, update], { axis }) => {
  const [outer, size, inner] = around(x.shape, axis);
  return l.launch(scatterAdd, {
    updates: { y: ownCopy(l, x) },
    reads: { indices: l.get(indices), update: l.f32(update) },
    scalars: { outer, size, count: elementCount(indices.shape), inner },
  });
});
