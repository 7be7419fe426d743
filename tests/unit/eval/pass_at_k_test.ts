/** pass@k by the formula of its paper. */
import { assertEquals } from "@std/assert";
import { passAtK } from "../../../core/eval/tasks/code.ts";

const GOLDEN = new URL("../../../fixtures/golden/eval/cases_pass_at_k.jsonl", import.meta.url);

Deno.test("every golden pass@k", async () => {
  const lines = (await Deno.readTextFile(GOLDEN)).trim().split("\n");
  assertEquals(lines.length, 12);
  for (const line of lines) {
    const { n, c, k, pass_at_k, pass_at_k_mean } = JSON.parse(line);
    if (pass_at_k_mean === undefined) assertEquals(passAtK(n, c, k), pass_at_k, line);
    else {
      const values = n.map((each: number, i: number) => passAtK(each, c[i], k));
      const mean = values.reduce((sum: number, value: number) => sum + value, 0) / values.length;
      assertEquals(mean, pass_at_k_mean, line);
    }
  }
});
