/** Grammars of many schemas are sound and complete, as far as random texts tell. */
import { assert } from "@std/assert";
import { Dice, randomSchema } from "../schema_fuzzing/schemas.ts";
import { apiSchemas, trySchema } from "../schema_fuzzing/try.ts";

const SCHEMAS = 400;

Deno.test("texts along the masks of 440 schemas are valid, and valid documents are along the masks", () => {
  const total = { refused: 0, samples: 0, documents: 0 };
  const random = Array.from({ length: SCHEMAS }, (_, seed) => randomSchema(new Dice(seed)));
  const all = [...random, ...apiSchemas().map(({ schema }) => schema)];
  for (const [seed, schema] of all.entries()) {
    const tried = trySchema(schema, new Dice(1000 + seed), { samples: 5, documents: 20 });
    if (seed >= SCHEMAS) assert(tried.refused === 0, `refused: ${JSON.stringify(schema)}`);
    for (const key of ["refused", "samples", "documents"] as const) total[key] += tried[key];
  }
  console.log(total);
  assert(total.refused < 120, `${total.refused} schemas were refused`);
  assert(total.samples > 1200 && total.documents > 4000, JSON.stringify(total));
});
