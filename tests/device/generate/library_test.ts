/** The library that `mod.ts` is when it is imported. */
import { assert, assertEquals, assertRejects } from "@std/assert";
import { DataError } from "../../../core/base/errors.ts";
import { openModel, run } from "../../../mod.ts";

const MODEL = new URL("../../../fixtures/models/word-problems", import.meta.url).pathname;
const PROMPT =
  "Question: Cosima works 7 hours and earns 24 dollars each hour. Cosima spends 4 dollars on a " +
  "shirt. How many dollars does Cosima have?\nAnswer:";

Deno.test("a model continues a text, piece by piece, and stops where it is told", async () => {
  using model = await openModel(MODEL, { threads: 1 });
  assertEquals(model.config.streams, 1);
  const pieces: string[] = [];
  for await (const piece of model.generate(PROMPT)) pieces.push(piece);
  assert(pieces.length > 5, "pieces come as they are made");
  assert(pieces.join("").endsWith("#### 124"), pieces.join(""));
  let stopped = "";
  for await (const piece of model.generate(PROMPT, { stop: ["####"] })) stopped += piece;
  assertEquals(pieces.join(""), `${stopped}#### 124`);
});

Deno.test("the same seed draws the same text", async () => {
  using model = await openModel(MODEL, { threads: 1 });
  const draw = async (seed: number) => {
    let text = "";
    const options = { seed, temperature: 1.5, maxTokens: 24 };
    for await (const piece of model.generate(PROMPT, options)) text += piece;
    return text;
  };
  const texts = [await draw(1), await draw(1), await draw(2)];
  assertEquals(texts[0], texts[1]);
  assert(texts[0] !== texts[2]);
});

Deno.test("a continuation is scored, by text or by ids", async () => {
  using model = await openModel(MODEL, { threads: 1 });
  const right = await model.score(PROMPT, " Claire earns");
  const ids = model.tokenizer.encode(PROMPT);
  const same = await model.score(ids, model.tokenizer.encode(" Claire earns"));
  assertEquals(right.loglikelihood, same.loglikelihood);
  assertEquals(right.tokenLogprobs.length, model.tokenizer.encode(" Claire earns").length);
});

Deno.test("what cannot be opened or continued is said, and a command line can be run", async () => {
  await assertRejects(() => openModel("/nowhere"), DataError);
  using model = await openModel(MODEL, { threads: 1 });
  await assertRejects(() => model.generate("").next(), DataError, "no tokens");
  assertEquals(await run(["doctor", "--nonsense", "-qq"]), 2);
});
