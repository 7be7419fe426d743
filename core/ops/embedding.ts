/**
 * embedding: rows of a table by token id.
 *
 * Kernel: one gather.
 */
import type { Builder } from "../graph/builder.ts";
import { gather } from "../graph/primitives.ts";
import type { Value } from "../graph/types.ts";
import { modelOp } from "./define.ts";

export const embeddingOp = modelOp<Record<never, never>>({
  name: "embedding",
  infer: ([table, ids]) => [{ dtype: table!.dtype, shape: [...ids!.shape, table!.shape[1]!] }],
  decompose: (g, [table, ids]) => [gather(g, table!, ids!, 0)],
});

/** table [V, C], ids [...] i32 → [..., C] */
export function embedding(g: Builder, table: Value, ids: Value): Value {
  return g.apply1(embeddingOp, [table, ids], {});
}
