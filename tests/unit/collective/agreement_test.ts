/** Ranks compare what they were started with. */
import { assertEquals, assertRejects } from "@std/assert";
import { gatherNumbers, hashNumber, requireSame } from "../../../core/collective/agreement.ts";
import { DataError } from "../../../core/base/errors.ts";
import { ReferenceDevice } from "../../../core/runtime/reference/device.ts";
import { asRanks } from "./memory_group.ts";

const device = new ReferenceDevice();

Deno.test("gatherNumbers returns the numbers of every rank", async () => {
  const all = await asRanks(3, device, (ranks) => gatherNumbers(ranks, [ranks.rank, 2 ** 48 - 1]));
  const expected = [0, 1, 2].map((rank) => [rank, 2 ** 48 - 1]);
  assertEquals(all, [expected, expected, expected]);
});

Deno.test("requireSame names the first rank that differs, and what differs, on every rank", async () => {
  const hash = (text: string) => hashNumber([text]);
  await asRanks(4, device, (ranks) => requireSame(ranks, { version: hash("1"), data: hash("a") }));
  await asRanks(4, device, async (ranks) => {
    const data = hash(ranks.rank >= 2 ? "other" : "same");
    await assertRejects(
      () => requireSame(ranks, { version: hash("1"), data }),
      DataError,
      "rank 2 differs from rank 0 in its data (as do 1 more)",
    );
  });
});

Deno.test("hashNumber depends on every byte and fits f64", () => {
  const numbers = ["", "a", "b", "ab"].map((text) => hashNumber([text]));
  assertEquals(new Set(numbers).size, numbers.length);
  assertEquals(numbers.every(Number.isSafeInteger), true);
  assertEquals(hashNumber(["a", "b"]), hashNumber(["ab"]));
});
