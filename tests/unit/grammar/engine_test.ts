/** The thread of grammars: order of its questions, those that are dropped, and its masks. */
import { fileURLToPath } from "node:url";
import { assert, assertEquals, assertRejects } from "@std/assert";
import { DataError } from "../../../core/base/errors.ts";
import { GrammarEngine } from "../../../core/grammar/engine.ts";
import { schemaGrammar } from "../../../core/grammar/schema.ts";
import { openTokenizer } from "../../../core/tokenizer/tokenizer.ts";

const directory = fileURLToPath(new URL("../../../fixtures/models/tiny-qwen2", import.meta.url));
const tokenizer = await openTokenizer(directory);
const vocabSize = tokenizer.vocabSize + 12, END = tokenizer.vocabSize - 1;

function newEngine(): GrammarEngine {
  return new GrammarEngine({ directory, vocabSize, stopTokenIds: [END] });
}

function isAllowed(mask: Int32Array, id: number): boolean {
  return (mask[id >> 5]! >> (id & 31) & 1) === 1;
}

/** A large schema: `count` patterns that are all possible at once. */
const large = (count: number) =>
  schemaGrammar({
    anyOf: Array.from({ length: count }, (_, i) => ({ type: "string", pattern: `a.{${i}}b` })),
  });

Deno.test("masks follow a text forwards and backwards, and its end", async () => {
  using engine = newEngine();
  const { first, after } = await engine.constraint(schemaGrammar({ enum: ["ab", "ac"] }));
  const ids = (text: string) => [...text].map((letter) => tokenizer.idOf(letter)!);
  assert(isAllowed(first, ids('"')[0]!) && !isAllowed(first, ids("a")[0]!));
  assert(isAllowed(await after(ids('"a')), ids("b")[0]!));
  assert(isAllowed(await after(ids('"ab"')), END));
  const back = await after(ids('"a'));
  assert(isAllowed(back, ids("c")[0]!) && !isAllowed(back, END));
  await assertRejects(() => after(ids('"x')), DataError, "does not match the grammar");
});

Deno.test("small schemas are answered before large ones that came earlier", async () => {
  using engine = newEngine();
  const order: string[] = [];
  const ask = async (name: string, count: number) => {
    await engine.constraint(large(count));
    order.push(name);
  };
  await Promise.all([ask("first", 1), ask("large", 50), ask("larger", 90), ask("small", 2)]);
  assertEquals(order, ["first", "small", "large", "larger"]);
});

Deno.test("questions whose client has gone are dropped", async () => {
  using engine = newEngine();
  const gone = new AbortController();
  const running = engine.constraint(large(1));
  const dropped = Array.from(
    { length: 20 },
    (_, i) => assertRejects(() => engine.constraint(large(60 + i), gone.signal), DOMException),
  );
  gone.abort();
  const start = performance.now();
  await running;
  await Promise.all(dropped);
  await engine.constraint(large(2));
  assert(performance.now() - start < 2000);
});

Deno.test("a closed model ends what waits", async () => {
  const engine = newEngine();
  const waiting = [1, 2, 3].map((count) =>
    assertRejects(() => engine.constraint(large(count)), DataError, "the model was closed")
  );
  engine[Symbol.dispose]();
  await Promise.all(waiting);
});
