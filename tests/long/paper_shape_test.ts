/** A plan for a shape of the paper, of which a step is measured: half a minute on two cores. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { withWorkplace } from "../cli/train_testing.ts";

Deno.test("a dry run of a shape of the paper counts its parameters as appendix C does", () =>
  withWorkplace(async (place) => {
    const texts = "--tokenizer p1 --data texts.jsonl --seq-len 24 --batch 2 --steps 1";
    const paper = "--init scratch --config-from paper-0.5b --streams 8";
    const { stdout } = await place.train(`${paper} ${texts} --out planned --dry-run --json`);
    const { plan } = JSON.parse(stdout).results;
    // 545,340,552 parameters in appendix C, and an embedding table of 151,936 by 896.
    assertEquals(plan[0], "model: paper-0.5b, qwen2, 8 streams of 48 prefix tokens");
    assertStringIncludes(plan[1], "trained parameters: 681,475,208 of 681,475,208 ");
    assert(!place.exists("planned"));
  }));
