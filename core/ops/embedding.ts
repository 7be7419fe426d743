/**
 * embedding: rows of a table by token id.
 *
 * Kernel: one gather.
 */
import { modelOp } from "./define.ts";

/** table [V, C], ids [...] i32 → [..., C] */
export const embedding = modelOp()({
  name: "embedding",
  inputs: ["table", "ids"],
  infer: ({ table, ids }) => ({ dtype: table.dtype, shape: [...ids.shape, table.shape[1]!] }),
  decompose: ({ table, ids }) => table.gather(ids, 0),
});
