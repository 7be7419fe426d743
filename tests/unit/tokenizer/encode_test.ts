/** Protects encoding and decoding: goldens, equality with the library, streaming, long runs. */
import { assert, assertEquals } from "@std/assert";
import { RandomStream } from "../../../core/base/random.ts";
import { toNfc } from "../../../core/tokenizer/nfc.ts";
import { openTokenizer, type Tokenizer } from "../../../core/tokenizer/tokenizer.ts";
import { FIXTURE, fixtureJson, mixedText, openFiles, openLibrary, qwenJson } from "./testing.ts";
import { HANG_MS } from "../../hang.ts";
import { readFixture } from "../../fixtures.ts";

interface Golden {
  readonly encode: readonly {
    readonly text: string;
    readonly ids: number[];
    readonly tokens: string[];
    readonly decoded: string;
    readonly decoded_skip_special: string;
  }[];
  readonly decode_only: readonly {
    readonly ids: number[];
    readonly decoded: string;
    readonly decoded_skip_special: string;
  }[];
}

const GOLDEN: Golden = readFixture("golden/tokenizer/cases.json");

function streamed(tokenizer: Tokenizer, ids: Iterable<number>, skipSpecial = false): string {
  const decoder = tokenizer.streamDecoder({ skipSpecial });
  let text = "";
  for (const id of ids) text += decoder.push(id);
  return text + decoder.flush();
}

Deno.test("every golden text encodes and decodes as recorded", async () => {
  const tokenizer = await openTokenizer(FIXTURE);
  assertEquals(tokenizer.kind, "byte-level-bpe");
  assertEquals(tokenizer.vocabSize, 512);
  assertEquals([GOLDEN.encode.length, GOLDEN.decode_only.length], [62, 12]);
  for (const { text, ids, tokens } of GOLDEN.encode) {
    assertEquals(tokenizer.encode(text), ids, JSON.stringify(text));
    assertEquals(ids.map((id) => tokenizer.tokenText(id)), tokens);
    assertEquals(tokens.map((token) => tokenizer.idOf(token)), ids);
  }
  for (const { ids, decoded, decoded_skip_special } of [...GOLDEN.encode, ...GOLDEN.decode_only]) {
    assertEquals(tokenizer.decode(ids), decoded);
    assertEquals(tokenizer.decode(ids, { skipSpecial: true }), decoded_skip_special);
    assertEquals(streamed(tokenizer, ids), decoded);
    assertEquals(streamed(tokenizer, ids, true), decoded_skip_special);
  }
});

Deno.test("streamed text equals decoded text for random ids", async () => {
  const tokenizer = await openTokenizer(FIXTURE);
  const stream = new RandomStream(1, "ids");
  for (let i = 0; i < 300; i++) {
    // Ids below 256 are single bytes: most of these are not valid UTF-8.
    const ids = Array.from({ length: 12 }, () => stream.integer(i % 2 === 0 ? 256 : 512));
    assertEquals(streamed(tokenizer, ids), tokenizer.decode(ids));
  }
});

Deno.test("streaming holds back an incomplete character and nothing else", async () => {
  const tokenizer = await openTokenizer(FIXTURE);
  const decoder = tokenizer.streamDecoder();
  const [a, ...euro] = tokenizer.encode("a€");
  assertEquals(euro.length, 3);
  assertEquals([a!, ...euro].map((id) => decoder.push(id)), ["a", "", "", "€"]);
  assertEquals(decoder.push(euro[0]!), "");
  assertEquals(decoder.flush(), "\ufffd");
});

/** Runs and random texts of a given length, by name. */
function longTexts(length: number): [string, string][] {
  const stream = new RandomStream(3, "long");
  const random = (first: number, count: number) =>
    Array.from({ length }, () => String.fromCodePoint(first + stream.integer(count))).join("");
  const runs = ["a", " ", "7", "é", "𠀀", "😀", "ab", "!", "\n", "\n ", "\0", "'s", "<|", "<|im_"];
  return [
    ...runs.map((unit): [string, string] => [unit, unit.repeat(length / unit.length)]),
    ["random letters", random(97, 26)],
    ["random bytes", random(0, 256)],
    ["random digits", random(48, 10)],
    ["random emoji", random(0x1f600, 80)],
    ["random Han", random(0x4e00, 20000)],
    ["marks of one class", "a" + "\u0301".repeat(length)],
    ["marks of two classes", "a" + "\u0301\u0323".repeat(length / 2)],
  ];
}

/** Opens our tokenizer of a file, and the library's. */
async function withBoth(
  json: string,
  compare: (ours: Tokenizer, library: ReturnType<typeof openLibrary>) => void,
): Promise<void> {
  compare(await openFiles({ "tokenizer.json": json }), openLibrary(json));
}

function compareLongTexts(ours: Tokenizer, library: ReturnType<typeof openLibrary>): void {
  for (const [name, text] of longTexts(12_000)) {
    assertEquals(ours.encode(text), library.encode(text), name);
  }
}

const BOTH = { small: JSON.stringify(fixtureJson()), "Qwen2.5": await qwenJson() };
for (const [name, json] of Object.entries(BOTH)) {
  const ignore = json === undefined; // no ../shared/data/qwen-tokenizer/tokenizer.json.gz
  Deno.test(
    `2,000 mixed texts encode as with the library, ${name} tokenizer`,
    { ignore },
    () =>
      withBoth(json!, (ours, library) => {
        assertEquals(ours.kind, "byte-level-bpe");
        for (let seed = 0; seed < 2000; seed++) {
          const text = mixedText(seed), ids = ours.encode(text), decoded = ours.decode(ids);
          assertEquals(ids, library.encode(text), JSON.stringify(text));
          assertEquals(decoded, text.normalize("NFC"));
          if (seed % 10 === 0) assertEquals(library.decode(ids), decoded);
        }
      }),
  );
  Deno.test(`long runs and random texts encode as with the library, ${name} tokenizer`, {
    ignore,
  }, () => withBoth(json!, compareLongTexts));
}

Deno.test("a token longer than a window's overlap encodes as with the library", async () => {
  const json = fixtureJson();
  for (let half = "a"; half.length <= 1024; half += half) {
    json.model.vocab[half + half] ??= 600 + half.length;
    if (!json.model.merges.some((merge: string | string[]) => `${merge}` === `${half} ${half}`)) {
      json.model.merges.push(`${half} ${half}`);
    }
  }
  await withBoth(JSON.stringify(json), compareLongTexts);
});

for (const [name, text] of longTexts(500_000)) {
  // The guard cannot stop the runtime, which sorts marks in quadratic time; nfc_test.ts has these.
  if (name === "marks of two classes") continue;
  Deno.test(
    `a text of half a million characters is encoded: ${name}`,
    { timeout: HANG_MS },
    async () => {
      const tokenizer = await openTokenizer(FIXTURE);
      assert(tokenizer.decode(tokenizer.encode(text)) === toNfc(text));
    },
  );
}

Deno.test("500 texts of random code units round-trip, lone surrogates as U+FFFD", async () => {
  const tokenizer = await openTokenizer(FIXTURE);
  const stream = new RandomStream(2, "units");
  for (let i = 0; i < 500; i++) {
    const units = Array.from({ length: stream.integer(40) }, () =>
      // Every other unit is a surrogate, so pairs and halves of pairs both occur.
      stream.integer(2) === 0 ? 0xd800 + stream.integer(0x800) : stream.integer(0x10000));
    const text = String.fromCharCode(...units);
    const ids = tokenizer.encode(text, { specialTokens: i % 2 === 0 });
    assertEquals(tokenizer.decode(ids), text.toWellFormed().normalize("NFC"));
  }
});

Deno.test("special tokens can be plain text; other added tokens are always found", async () => {
  const tokenizer = await openTokenizer(FIXTURE);
  const text = "<|im_end|><tool_call>";
  assertEquals(tokenizer.encode(text), [492, 504]);
  const plain = tokenizer.encode(text, { specialTokens: false });
  assertEquals(plain.at(-1), 504);
  assert(!plain.includes(492));
  assertEquals(tokenizer.decode(plain), text);
  assertEquals(tokenizer.decode([492, 504], { skipSpecial: true }), "<tool_call>");
});
