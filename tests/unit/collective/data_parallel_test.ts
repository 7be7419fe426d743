/** Division of arrays and batches among ranks: what is divided is covered once. */
import { assert, assertEquals } from "@std/assert";
import { chunksOf } from "../../../core/collective/collective.ts";
import { sliceOf } from "../../../core/collective/data_parallel.ts";
import { ReferenceDevice } from "../../../core/runtime/reference/device.ts";
import { asRanks } from "./memory_group.ts";

const device = new ReferenceDevice("f32");

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

Deno.test("parts of an array come in order, whatever the chunks and slices", async () => {
  for (const count of [1000, 130, 3]) {
    const [found] = await asRanks(3, device, async (ranks) => {
      const slice = ranks.slice(count);
      const tensor = device.allocate({ dtype: "f32", shape: [slice.count] });
      device.write(tensor, Array.from({ length: slice.count }, (_, i) => slice.start + i));
      const numbers: number[] = [];
      for await (const part of ranks.parts(tensor, count)) numbers.push(...device.read(part));
      return numbers;
    }, () => ({ chunk: 100 }));
    assertEquals(found, Array.from({ length: count }, (_, i) => i));
  }
});

Deno.test("ranks share batches in turn, and their cursors agree after the last", async () => {
  const read = await asRanks(3, device, (ranks) => {
    let at = 0;
    const skip = () => at < 7 && ++at > 0;
    const batches = ranks.share({
      next: () => skip() ? at : undefined,
      skip,
      get cursor() {
        return at;
      },
    });
    const steps = [batches.next(), batches.cursor, batches.next(), batches.cursor];
    return Promise.resolve([...steps, batches.next(), batches.next(), batches.cursor]);
  });
  assertEquals(read, [
    [1, 3, 4, 6, 7, undefined, 7],
    [2, 3, 5, 6, undefined, undefined, 7],
    [3, 3, 6, 6, undefined, undefined, 7],
  ]);
});
