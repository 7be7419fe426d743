/** Protects the planning of rows: nothing lost, nothing twice, rows full. */
import { assert, assertEquals, assertStringIncludes, assertThrows } from "@std/assert";
import { type PlanOptions, planRows, type RowPlan } from "../../../core/data/pack.ts";
import { DataError } from "../../../core/base/errors.ts";
import { RandomStream } from "../../../core/base/random.ts";
import { HANG_MS } from "../../hang.ts";

const OPTIONS: PlanOptions = {
  ...{ tokens: 10, pack: true, longRows: "error" },
  splittable: () => true,
  isTrained: () => true,
  nameOf: (document) => `row ${document + 1}`,
};

/** Plans documents in file order. */
const plan = (lengths: readonly number[], options: Partial<PlanOptions> = {}) =>
  planRows(Uint32Array.from(lengths), Uint32Array.from(lengths.keys()), { ...OPTIONS, ...options });

/** Rows as lists of [document, start, length]. */
const rowsOf = ({ rows, rowStarts, documents, starts, lengths }: RowPlan) =>
  Array.from({ length: rows }, (_, row) => {
    const first = rowStarts[row]!, length = rowStarts[row + 1]! - first;
    const pieces = Array.from({ length }, (_, i) => first + i);
    return pieces.map((piece) => [documents[piece]!, starts[piece]!, lengths[piece]!]);
  });

const randomLengths = (count: number, least: number, most: number, seed = 1) => {
  const random = new RandomStream(seed);
  return Array.from({ length: count }, () => least + random.integer(most - least + 1));
};

Deno.test("a piece goes into the open row with the least room that is enough", () => {
  assertEquals(rowsOf(plan([6, 5, 4, 3, 5, 2, 2])), [
    [[0, 0, 6], [2, 0, 4]],
    [[1, 0, 5], [3, 0, 3], [5, 0, 2]],
    [[4, 0, 5], [6, 0, 2]],
  ]);
});

Deno.test("the fullest of too many open rows is closed", () => {
  // 64 rows with room for 4, of which the tenth has room for 3 only; the 65th closes that.
  const lengths = Array.from({ length: 65 }, (_, i) => i === 9 ? 7 : 6);
  const rows = rowsOf(plan([...lengths, 3, 4]));
  assertEquals(rows.length, 65);
  assertEquals(rows[9], [[9, 0, 7]]);
  assertEquals(rows.filter((row) => row.length === 2).length, 2);
});

Deno.test("a document that may be cut loses no target, and a last token alone is dropped", () => {
  assertEquals(rowsOf(plan([21])), [[[0, 0, 10]], [[0, 10, 10]]]);
  assertEquals(rowsOf(plan([22])), [[[0, 0, 10]], [[0, 10, 10]], [[0, 20, 2]]]);
  assertEquals(rowsOf(plan([10, 1, 0, 11])), [[[0, 0, 10]], [[3, 0, 10]]]);
});

Deno.test("without packing every piece has a row, in order", () => {
  assertEquals(rowsOf(plan([2, 13, 1, 3], { pack: false })), [
    [[0, 0, 2]],
    [[1, 0, 10]],
    [[1, 10, 3]],
    [[3, 0, 3]],
  ]);
});

Deno.test("documents that do not fit stop the run, are dropped or cut short", () => {
  const splittable = (document: number) => document === 3;
  const lengths = [4, 11, 5, 12];
  const strict = () => void plan(lengths, { splittable });
  const words = "row 2 does not fit into a row: 11 tokens, expected at most 10";
  const { hints } = assertThrows(strict, DataError, words);
  assertStringIncludes(hints.join(), "`--seq-len` to 11");
  const dropped = plan(lengths, { splittable, longRows: "drop" });
  assertEquals(dropped.shortened, 1);
  assertEquals(rowsOf(dropped), [[[0, 0, 4], [2, 0, 5]], [[3, 0, 10]], [[3, 10, 2]]]);
  const cut = plan(lengths, { splittable, longRows: "truncate" });
  assertEquals(cut.shortened, 1);
  assertEquals(rowsOf(cut).flat().filter(([document]) => document === 1), [[1, 0, 10]]);
});

Deno.test("pieces of cut documents without a trained target are left out", () => {
  const asked: number[][] = [];
  const isTrained = (document: number, start: number, end: number) => {
    asked.push([document, start, end]);
    return start > 0;
  };
  assertEquals(rowsOf(plan([10, 25], { isTrained })), [[[0, 0, 10]], [[1, 10, 10]], [[1, 20, 5]]]);
  assertEquals(asked, [[1, 0, 10], [1, 10, 20], [1, 20, 25]]);
});

Deno.test("random documents are all there once, in rows that are not too long", () => {
  for (let seed = 0; seed < 20; seed++) {
    const lengths = randomLengths(500, 0, 40, seed), tokens = 5 + seed;
    for (const pack of [true, false]) {
      const seen = lengths.map((length) => new Uint8Array(length));
      for (const row of rowsOf(plan(lengths, { tokens, pack }))) {
        assert(row.length > 0 && (pack || row.length === 1));
        assert(row.reduce((sum, [, , length]) => sum + length!, 0) <= tokens);
        for (const [document, start, length] of row) {
          assert(length! >= 2);
          for (let i = 0; i < length!; i++) seen[document!]![start! + i]!++;
        }
      }
      // All slots that have a target, and none twice; the last slot has none and may be missing.
      for (const slots of seen) {
        assert(slots.subarray(0, -1).every((count) => count === 1));
        assert((slots.at(-1) ?? 0) <= 1);
      }
    }
  }
});

Deno.test("rows are nearly full", () => {
  const fill = (lengths: readonly number[], tokens: number) =>
    lengths.reduce((sum, length) => sum + length, 0) / (plan(lengths, { tokens }).rows * tokens);
  // Two of 60 to 110 leave on average 11% of 192 free, and seldom fit three: 0.9 is what there is.
  assert(fill(randomLengths(5000, 60, 110), 192) > 0.89);
  assert(fill(randomLengths(5000, 40, 110), 192) > 0.91);
  assert(fill(randomLengths(5000, 10, 2048), 2048) > 0.96);
  assert(fill(randomLengths(5000, 10, 400), 2048) > 0.99);
});

Deno.test(
  "a million documents are planned without a look at every row",
  { timeout: HANG_MS },
  () => {
    assert(plan(randomLengths(1e6, 2, 3000), { tokens: 2048 }).rows > 5e5);
  },
);
