/** pass@k by the formula of its paper. */
import { assertEquals } from "@std/assert";
import { passAtK } from "../../../core/eval/tasks/code.ts";
import { fixtureRows } from "../../fixture_rows.ts";

Deno.test("every golden pass@k", () => {
  const cases = fixtureRows("golden/eval/cases_pass_at_k.jsonl");
  assertEquals(cases.length, 12);
  for (const { n, c, k, pass_at_k, pass_at_k_mean } of cases) {
    if (pass_at_k_mean === undefined) assertEquals(passAtK(n, c, k), pass_at_k);
    else {
      const values = n.map((each: number, i: number) => passAtK(each, c[i], k));
      const mean = values.reduce((sum: number, value: number) => sum + value, 0) / values.length;
      assertEquals(mean, pass_at_k_mean);
    }
  }
});
