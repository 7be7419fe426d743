/** Primitives that take and add by index, and the gradient of embeddings. */
import text from "../../../../kernels/primitive/indexing.cu" with { type: "text" };
import * as p from "../../../graph/primitives.ts";
import { elementCount } from "../../../graph/types.ts";
import type { Value } from "../../../graph/value.ts";
import { embedding } from "../../../ops/embedding.ts";
import type { Lowering } from "../lowering.ts";
import { each, grid, kernel, kernelFile } from "./define.ts";
import { f32 } from "./reduce.ts";
import { gradientRule, listRule, type Rule } from "./rule.ts";
import { around } from "./strided.ts";

export const INDEXING = kernelFile("primitive/indexing.cu", text, [{}]);

const byRow = ({ rows }: Record<string, number>) => each(rows!, 1, 128);

const takeLast = kernel(INDEXING, "take_last", byRow);
const addLast = kernel(INDEXING, "add_last", byRow);
const scatterAdd = kernel(INDEXING, "scatter_add", ({ outer, count }) => grid(128, count!, outer!));

/** Adds entries of `update` to y [outer, size, inner] where they belong, in order. */
function scattered(
  l: Lowering,
  y: Value,
  [ids, update]: readonly [Value, Value],
  [outer, size, inner]: readonly [number, number, number],
): Value[] {
  return l.launch(scatterAdd, {
    updates: { y },
    reads: { indices: l.get(ids), update: l.f32(update) },
    scalars: { outer, size, count: elementCount(ids.shape), inner },
  });
}

export const INDEXING_RULES: readonly Rule[] = [
  listRule(p.takeLast, (l, [x, indices], _, [y]) =>
    l.launch(takeLast, {
      reads: { x: l.f32(x), indices: l.get(indices) },
      writes: { y },
      scalars: { rows: elementCount(y.shape), size: x.shape.at(-1)! },
    })),
  listRule(p.addLast, (l, [x, indices, update]) =>
    l.launch(addLast, {
      updates: { y: l.ownCopy(x) },
      reads: { indices: l.get(indices), update: l.f32(update) },
      scalars: { rows: elementCount(indices.shape), size: x.shape.at(-1)! },
    })),
  listRule(
    p.scatterAdd,
    (l, [x, ids, update], { axis }) =>
      scattered(l, l.ownCopy(x), [ids, update], around(x.shape, axis)),
  ),
  gradientRule(embedding, (l, { table, ids }, { upstream }) => ({
    table: scattered(l, l.zeros(f32(...table.shape)), [ids, upstream], around(table.shape, 0))[0]!,
  })),
];
