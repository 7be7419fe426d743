/** Rows of a table by token id; its gradient adds them up again. */
import text from "../../../../kernels/forward/embedding.cu" with { type: "text" };
import { elementCount } from "../../../graph/types.ts";
import { embedding } from "../../../ops/embedding.ts";
import { grid, kernel, kernelFile } from "./define.ts";
import { scatterAdd } from "./indexing.ts";
import { gradientRule, type Rule, rule } from "./rule.ts";
import { f32 } from "./sums.ts";

export const EMBEDDING = kernelFile("forward/embedding.cu", text);

const rows = kernel(
  EMBEDDING,
  "embedding *y *table *ids tokens C V",
  ({ tokens }) => grid(128, tokens!),
);

export const EMBEDDING_RULES: readonly Rule[] = [
  rule(embedding, (l, { table, ids }, _, [y]) => {
    const [V, C] = table.shape as [number, number];
    return l.launch(rows, {
      reads: { table: l.operand(table), ids: l.get(ids) },
      writes: { y: l.type(y.shape) },
      scalars: { tokens: elementCount(ids.shape), C, V },
    });
  }),
  gradientRule(embedding, (l, { table, ids }, { upstream }) => ({
    table() {
      const [size, inner] = table.shape as [number, number];
      return l.launch(scatterAdd, {
        updates: { y: l.zeros(f32(size, inner)) },
        reads: { indices: l.get(ids), update: l.f32(upstream) },
        scalars: { outer: 1, size, count: elementCount(ids.shape), inner },
      })[0]!;
    },
  })),
];
