/** Slices of ZeRO-1: they cover, they do not overlap, and they are aligned. */
import { assert, assertEquals } from "@std/assert";
import { chunksOf } from "../../../core/collective/collective.ts";
import { sliceOf } from "../../../core/collective/data_parallel.ts";

Deno.test("slices of 1 to 8 ranks cover an array once, in cache lines", () => {
  for (const count of [0, 1, 63, 64, 65, 1000, 4096, 123_457]) {
    assertEquals(sliceOf(count, 1, 0), { start: 0, count, total: count });
    for (let world = 1; world <= 8; world++) {
      const padded = sliceOf(count, world, 0).total;
      assert(padded >= count && padded - count < world * 64);
      let end = 0;
      for (let rank = 0; rank < world; rank++) {
        const slice = sliceOf(count, world, rank);
        assertEquals(slice.start, end);
        if (world > 1) assertEquals(slice.count % 64, 0);
        end += slice.count;
      }
      assertEquals(end, padded);
    }
  }
});

Deno.test("chunks are as large as they may be, and none is empty", () => {
  assertEquals([...chunksOf(10, 4)], [
    { start: 0, count: 4 },
    { start: 4, count: 4 },
    { start: 8, count: 2 },
  ]);
  assertEquals([...chunksOf(4, 4)], [{ start: 0, count: 4 }]);
  assertEquals([...chunksOf(0, 4), ...chunksOf(-3, 4)], []);
});
