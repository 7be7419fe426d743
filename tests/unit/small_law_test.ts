import { assert, assertEquals } from "@std/assert";
import {
  allCells,
  configOf,
  introducedSweep,
  ratesOf,
  rateSweep,
  SIZES,
  STREAMS,
} from "../../fixtures/small_law/cells.ts";
import { isUsable, selectFiles, split } from "../../fixtures/small_law/corpus.ts";
import { trainArguments } from "../../fixtures/small_law/grid.ts";

Deno.test("corpus selection drops duplicates and unusable files and orders by hash", async () => {
  const file = (name: string) => `${name}\n`.repeat(200);
  const files = await selectFiles([file("abc"), file("def"), file("abc"), "short", file("\0")]);
  assertEquals(files.map(({ text }) => text.slice(0, 3)).sort(), ["abc", "def"]);
  assert(files[0]!.hash < files[1]!.hash);
  assert(!isUsable("x".repeat(600)), "a line of 600 characters is too long");
});

Deno.test("corpus split depends on a file's hash alone", () => {
  const files = Array.from({ length: 4000 }, (_, i) => ({
    hash: i.toString(16).padStart(64, "0"),
    text: "x".repeat(100),
  }));
  const { train, validation } = split(files);
  assertEquals(validation.length, 100);
  assertEquals(validation, split([...files].reverse()).validation.toReversed());
  assertEquals(train.length, 3900);
});

Deno.test("the law's cells have unique names and cover every size and P with two seeds", () => {
  const cells = allCells();
  assertEquals(new Set(cells.map(({ id }) => id)).size, cells.length);
  for (const size of SIZES) {
    for (const streams of STREAMS) {
      const seeds = cells.filter((cell) => cell.size === size && cell.streams === streams)
        .map(({ seed }) => seed);
      assert(seeds.includes(0) && seeds.includes(1), `${size.name} P=${streams}`);
    }
  }
});

Deno.test("rates are those of the lowest validation loss in the sweeps", () => {
  const [size] = SIZES, losses = new Map<string, number>();
  rateSweep(size!).forEach(({ id }, i) => losses.set(id, [3, 2, 4, 5][i]!));
  introducedSweep().forEach(({ id }, i) => losses.set(id, [3, 4, 2][i]!));
  const cell = { id: "x", size: size!, streams: 4, seed: 1 };
  assertEquals(ratesOf(cell, losses), { lr: 4e-3, prefix: 3e-2, aggregator: 1e-2 });
  const folders = { corpus: "c", shape: "s", out: "o" };
  const args = trainArguments(cell, losses, folders);
  assertEquals(args[args.indexOf("--lr") + 1], "0.004");
});

Deno.test("sizes have about the named number of parameters without the embedding", () => {
  const counts = SIZES.map((size) => {
    const c = configOf(size, 2048) as Record<string, number>;
    const hidden = c.hidden_size!, kv = 16 * size.kvHeads;
    const attention = 2 * hidden * hidden + hidden + 2 * (hidden * kv + kv);
    return 4 * (attention + 3 * hidden * size.intermediate + 2 * hidden) + hidden;
  });
  assertEquals(counts, [49_696, 108_272, 197_696, 394_720]);
});
