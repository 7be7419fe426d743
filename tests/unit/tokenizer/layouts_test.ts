/** Protects the layouts that the own encoder knows besides Qwen's: equality with the library. */
import { assertEquals } from "@std/assert";
import { GPT2_PATTERNS, LLAMA3_PATTERN } from "../../../core/tokenizer/word_splitter.ts";
import {
  byteLevel,
  fixtureJson,
  mixedText,
  openFiles,
  openLibrary,
  sequence,
  split,
} from "./testing.ts";

type Json = ReturnType<typeof fixtureJson>;

const digits = (individual_digits: boolean) => ({ type: "Digits", individual_digits });
const GPT2 = sequence(split(GPT2_PATTERNS[0]!), byteLevel(false));
const CUT = sequence(split("\\p{N}"), split(GPT2_PATTERNS[0]!), byteLevel(false));
const CUT_RUNS = sequence(split("\\p{N}+"), split(GPT2_PATTERNS[0]!), byteLevel(false));
const LLAMA3 = sequence(split(LLAMA3_PATTERN), byteLevel(false));

/**
 * Ways to write a pre-tokenizer, by what it is, and how the library gets it: its own Digits knows decimal
 * digits alone, and its own expression of ByteLevel the white space of JavaScript.
 */
const LAYOUTS: Readonly<Record<string, readonly [own: unknown, library: unknown]>> = {
  "GPT-2": [byteLevel(true), GPT2],
  "GPT-2 by its expression": [GPT2, GPT2],
  "GPT-2 by its other spelling": [sequence(split(GPT2_PATTERNS[1]!), byteLevel(false)), GPT2],
  "SmolLM": [sequence(digits(true), byteLevel(true)), CUT],
  "SmolLM by expressions": [CUT, CUT],
  "runs of digits": [sequence(digits(false), byteLevel(true)), CUT_RUNS],
  "Llama 3": [LLAMA3, LLAMA3],
};

/** The small tokenizer in another layout. */
function jsonWith(pre_tokenizer: unknown): Json {
  return { ...fixtureJson(), normalizer: null, pre_tokenizer };
}

const open = (json: Json, config = {}) =>
  openFiles({ "tokenizer.json": json, "tokenizer_config.json": config });

for (const [name, [layout, ofLibrary]] of Object.entries(LAYOUTS)) {
  Deno.test(`1,000 mixed texts encode as with the library, ${name}`, async () => {
    const library = openLibrary(JSON.stringify(jsonWith(ofLibrary)));
    const tokenizer = await open(jsonWith(layout));
    assertEquals(tokenizer.kind, "byte-level-bpe");
    for (let seed = 0; seed < 1000; seed++) {
      const text = mixedText(seed);
      const ids = tokenizer.encode(text);
      assertEquals(ids, library.encode(text), JSON.stringify(text));
      assertEquals(tokenizer.decode(ids), text);
    }
  });
}

Deno.test("ignore_merges takes a word that is a token whole", async () => {
  const json = jsonWith(LLAMA3);
  const [merge] = json.model.merges as string[];
  const merged = (Array.isArray(merge) ? merge.join("") : merge!.replace(" ", "")) as string;
  const id = json.model.vocab[merged];
  json.model.merges = [];
  const plain = structuredClone(json);
  json.model.ignore_merges = true;
  const word = merged.replaceAll("Ġ", " ");
  assertEquals((await open(json)).encode(word), [id]);
  const bytes = new TextEncoder().encode(word);
  assertEquals((await open(plain)).encode(word).length, bytes.length);
});

Deno.test("a template frames texts, unless they begin with its token", async () => {
  const json = jsonWith(LLAMA3);
  const [first] = json.added_tokens;
  json.post_processor = {
    type: "Sequence",
    processors: [byteLevel(true), {
      type: "TemplateProcessing",
      single: [{ SpecialToken: { id: first.content, type_id: 0 } }, {
        Sequence: { id: "A", type_id: 0 },
      }],
      pair: [],
      special_tokens: { [first.content]: { id: first.content, ids: [first.id], tokens: [] } },
    }],
  };
  const tokenizer = await open(json, { bos_token: first.content });
  assertEquals(tokenizer.kind, "byte-level-bpe");
  const bare = tokenizer.encode("a b", { frame: false });
  assertEquals(tokenizer.encode("a b"), [first.id, ...bare]);
  assertEquals(tokenizer.encode(`${first.content}a b`), [first.id, ...bare]);
  assertEquals(tokenizer.encode("a b", { specialTokens: false }), bare);
});

Deno.test("a byte without a token is left out where no token stands for it", async () => {
  const json = jsonWith(LAYOUTS.SmolLM![0]);
  delete json.model.vocab["Ă"]; // byte 2
  const tokenizer = await open(json);
  assertEquals(tokenizer.kind, "byte-level-bpe");
  assertEquals(tokenizer.encode("a\u0002b"), tokenizer.encode("ab"));
});
