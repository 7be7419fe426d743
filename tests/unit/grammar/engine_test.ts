/** The thread of grammars: order of its questions, those that are dropped, and its masks. */
import { assert, assertEquals, assertMatch, assertRejects } from "@std/assert";
import { DataError } from "../../../core/base/errors.ts";
import { GrammarEngine } from "../../../core/grammar/engine.ts";
import { Matcher } from "../../../core/grammar/matcher.ts";
import { networkOf } from "../../../core/grammar/network.ts";
import { tokenBytes } from "../../../core/grammar/token_bytes.ts";
import { MASK_WORK, TokenMasks } from "../../../core/grammar/token_masks.ts";
import { schemaGrammar } from "../../../core/grammar/schema.ts";
import { openTokenizer } from "../../../core/tokenizer/tokenizer.ts";
import { FIXTURES } from "../../fixtures.ts";

const directory = `${FIXTURES}models/tiny-qwen2`;
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

const ref = { $ref: "#/$defs/a" };
const recursive = (anyOf: readonly object[]) => ({ $defs: { a: { anyOf } }, ...ref });
const arrays = (count: number, bounds: (i: number) => object) =>
  recursive(Array.from({ length: count }, (_, i) => ({ type: "array", items: ref, ...bounds(i) })));

/** Small schemas of many readings, with a text that has as many as it can. */
const AMBIGUOUS: Readonly<Record<string, readonly [schema: object, text: string]>> = {
  "arrays apart by their title": [arrays(3, (i) => ({ title: `${i}` })), "["],
  "arrays apart by a far bound": [arrays(3, (i) => ({ maxItems: 1000 + i })), "["],
  "counted arrays": [arrays(40, (i) => ({ maxItems: 100 + i })), "["],
  "arrays with a minimum": [arrays(40, (i) => ({ minItems: i })), "["],
  "arrays of arrays": [
    recursive([ref, ref].map((items, i) => ({ items: { items, maxItems: 7 + i } }))),
    "[",
  ],
  "objects alike": [
    recursive([1, 2, 3, 4].map((i) => ({ properties: { n: ref, [`k${i}`]: {} } }))),
    '{"n":',
  ],
  "tuples": [
    recursive(Array.from({ length: 20 }, (_, i) => ({ prefixItems: Array(i + 1).fill(ref) }))),
    "[",
  ],
  "strings of many lengths": [
    { anyOf: Array.from({ length: 900 }, (_, i) => ({ type: "string", maxLength: 1000 + i })) },
    '"' + "a".repeat(99),
  ],
  "patterns side by side": [
    { anyOf: Array.from({ length: 90 }, (_, i) => ({ type: "string", pattern: `a.{${i}}b` })) },
    '"' + "a".repeat(99),
  ],
  "nested counts": [
    { type: "string", pattern: "^(([a-c]{1,30}){1,30})+x$" },
    '"' + "abc".repeat(66),
  ],
};

Deno.test("small schemas with many readings take bounded work, or end with an error by name", () => {
  const vocabulary = tokenBytes(tokenizer, tokenizer.vocabSize);
  const masks = new TokenMasks(vocabulary, [END]);
  const worst: [string, number][] = [];
  for (const [name, [schema, text]] of Object.entries(AMBIGUOUS)) {
    const matcher = new Matcher(networkOf(schemaGrammar(schema)), vocabulary, masks);
    const tokens = [...text.repeat(text.length > 9 ? 1 : 60)].map((sign) => tokenizer.idOf(sign)!);
    let work = 0;
    try {
      for (let i = 0; i <= Math.min(tokens.length, 60); i++) {
        matcher.mask(0, tokens.slice(0, i));
        worst.push([name, matcher.work - work]);
        work = matcher.work;
      }
    } catch (error) {
      if (!(error instanceof DataError)) throw error;
      assertMatch(error.message, /reads a text in too many ways/);
    }
    assert(matcher.work < 10_000_000, `${name}: ${matcher.work}`);
  }
  const most = Math.max(...worst.map(([, work]) => work));
  assert(most <= 2 * MASK_WORK, String(worst.find(([, work]) => work === most)));
  const [schema] = AMBIGUOUS["arrays apart by their title"]!;
  const single = networkOf(schemaGrammar(arrays(1, () => ({}))));
  assertEquals(networkOf(schemaGrammar(schema)).nodes, single.nodes);
});

Deno.test("a request of too much work fails by name, and others get their turn meanwhile", async () => {
  using engine = newEngine();
  const letters = ["a", "b", "c"].map((letter) => tokenizer.idOf(letter)!);
  let isOver = false;
  const endless = async () => {
    const { after } = await engine.constraint({
      schema: {
        anyOf: Array.from(
          { length: 60 },
          (_, i) => ({ type: "string", pattern: `^[ab]*a.{${i}}c*$` }),
        ),
      },
    });
    const tokens = [tokenizer.idOf('"')!];
    for (let i = 0; i < 50_000; i++) {
      tokens.push(letters[(i * i) % 7 % 2]!);
      await after(tokens);
    }
  };
  const ended = assertRejects(endless, DataError, "reads a text in too many ways")
    .finally(() => isOver = true);
  let answered = 0;
  while (!isOver) {
    await engine.constraint({ schema: { properties: { [`n${answered}`]: { type: "string" } } } });
    answered++;
  }
  await ended;
  assert(answered > 10, `${answered} other schemas were answered`);
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
