/** The paper's shapes by name have the parameter counts that its appendix C prints. */
import { assertEquals } from "@std/assert";
import { countShape } from "../../../core/analysis/cost.ts";
import { findSize, memberOf } from "../../../core/analysis/cost_family.ts";
import { parseConfig } from "../../../core/checkpoint/config.ts";
import { readShape } from "../../../core/checkpoint/shape_source.ts";
import type { ModelConfig } from "../../../core/model/config.ts";
import { countParameters } from "../../../core/model/parameters.ts";
import { PAPER_SHAPES } from "../../../core/model/paper_shapes.ts";
import { readFixture } from "../../fixtures.ts";

async function configOf(name: string, streams: number): Promise<ModelConfig> {
  const { json, path } = await readShape(name);
  return { ...parseConfig(json, path), streams, prefix: streams > 1, prefixTokens: 48 };
}

Deno.test("the six shapes with 1, 2, 4 and 8 streams have the 24 counts of appendix C", async () => {
  const { observations } = readFixture("analysis/scaling-law.json").datasets["stack-v2-python"];
  const counted = [];
  for (const P of [1, 2, 4, 8]) {
    for (const { name } of PAPER_SHAPES) {
      const config = await configOf(name, P);
      const { total, embedding } = countParameters(config);
      const N = total - embedding;
      assertEquals(countShape(config, P, 48).nonEmbedding, N);
      counted.push({ N, P });
    }
  }
  assertEquals(counted, observations.map(({ N, P }: { N: number; P: number }) => ({ N, P })));
  assertEquals(counted.length, 24);
});

Deno.test("a shape of the paper is the same for training and for the cost model", async () => {
  for (const { name, size } of PAPER_SHAPES) {
    assertEquals(memberOf(await configOf(name, 1)), findSize(size));
    assertEquals(findSize(name), findSize(size));
  }
});
