/** Protects opening: both file layouts, the library for other kinds, and what is refused. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { DataError } from "../../../core/base/errors.ts";
import { openTokenizer } from "../../../core/tokenizer/tokenizer.ts";
import { userError } from "../checkpoint/testing.ts";
import { FIXTURE, fixtureJson, mixedText, openFiles } from "./testing.ts";

/** Message of the DataError that opening these files ends with. */
async function refusal(files: Record<string, unknown>): Promise<string> {
  const error = await userError(() => openFiles(files));
  assert(error instanceof DataError, String(error));
  return error.message;
}

const CONFIG = JSON.parse(Deno.readTextFileSync(`${FIXTURE}/tokenizer_config.json`));
const TEXTS = Array.from({ length: 50 }, (_, seed) => mixedText(seed));

Deno.test("merges as pairs, indented and escaped files, and two-file folders give equal ids", async () => {
  const json = fixtureJson();
  const { vocab, merges } = json.model;
  const pairs = merges.map((merge: string) => merge.split(" "));
  const inPairs = { ...json, model: { ...json.model, merges: pairs } };
  const escape = (text: string) =>
    text.replace(/[\u0080-\uffff]/g, (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));
  const lines = "#version: 0.2\n" + merges.join("\n") + "\n";
  const variants: Record<string, unknown>[] = [
    { "tokenizer.json": inPairs },
    { "tokenizer.json": JSON.stringify(inPairs, null, 2) },
    { "tokenizer.json": escape(JSON.stringify(json)) },
    { "vocab.json": vocab, "merges.txt": lines, "tokenizer_config.json": CONFIG },
    {
      "vocab.json": escape(JSON.stringify(vocab)),
      "merges.txt": merges.join("\r\n"),
      "tokenizer_config.json": CONFIG,
    },
  ];
  for (const files of variants) {
    const tokenizer = await openFiles(files);
    assertEquals(tokenizer.kind, "byte-level-bpe");
    assertEquals(tokenizer.vocabSize, 512);
    assertEquals(TEXTS.map((text) => tokenizer.encode(text)), EXPECTED);
  }
});

const openedFixture = await openTokenizer(FIXTURE);
const EXPECTED = TEXTS.map((text) => openedFixture.encode(text));

Deno.test("rows of the model without token decode to nothing; ids beyond are refused", async () => {
  const tokenizer = await openFiles({
    "tokenizer.json": fixtureJson(),
    "config.json": { vocab_size: 600 },
  });
  assertEquals(tokenizer.vocabSize, 512);
  assertEquals(tokenizer.decode([64, 599, 512, 65]), "ab");
  assertEquals(tokenizer.tokenText(599), "");
  for (const id of [600, -1, 1.5, NaN]) {
    const { message } = await userError(() => tokenizer.decode([id]));
    assertStringIncludes(message, `token id ${id}`);
    assertStringIncludes(message, "vocabulary of 600");
  }
});

Deno.test("added tokens take white space along, are found in normalised text, and are united", async () => {
  const json = fixtureJson();
  const token = { single_word: false, lstrip: false, rstrip: false, special: true };
  json.added_tokens.push(
    { ...token, id: 512, content: "<mask>", lstrip: true, rstrip: true, normalized: false },
    { ...token, id: 513, content: "\u00c5ngström", normalized: true },
  );
  const config = {
    added_tokens_decoder: { 514: { ...token, content: "<think>", special: false } },
  };
  const tokenizer = await openFiles({ "tokenizer.json": json, "tokenizer_config.json": config });
  assertEquals(tokenizer.encode("a \u0085<mask>\n\u3000b"), [64, 512, 65]);
  assertEquals(tokenizer.encode("A\u030angström<think>"), [513, 514]);
  assertEquals(tokenizer.idOf("<think>"), 514);
});

Deno.test("older folders name special and added tokens in files of their own", async () => {
  const { added_tokens_decoder: decoder, ...rest } = CONFIG;
  const entries = Object.entries<{ content: string }>(decoder);
  const older = (config: Record<string, unknown>) => ({
    "vocab.json": fixtureJson().model.vocab,
    "merges.txt": fixtureJson().model.merges.join("\n"),
    "tokenizer_config.json": config,
    "added_tokens.json": Object.fromEntries(entries.map(([id, { content }]) => [content, +id])),
    "special_tokens_map.json": {
      bos_token: { content: "<|im_start|>" },
      eos_token: "<|im_end|>",
      additional_special_tokens: ["<|object_ref_start|>"],
    },
  });
  const tokenizer = await openFiles(older({ ...rest, eos_token: "<|endoftext|>" }));
  assertEquals(TEXTS.map((text) => tokenizer.encode(text)), EXPECTED);
  assertEquals(tokenizer.namedTokens.bos_token, "<|im_start|>");
  assertEquals(tokenizer.namedTokens.eos_token, "<|im_end|>");
  const text = "<|im_end|><|object_ref_start|><tool_call>";
  assertEquals(tokenizer.decode(tokenizer.encode(text), { skipSpecial: true }), "<tool_call>");
  assertEquals((await openFiles(older(CONFIG))).namedTokens.eos_token, CONFIG.eos_token);
});

Deno.test("special tokens that only tokenizer_config.json names have the ids of transformers 5.24", async () => {
  const json = fixtureJson(), top = json.model.vocab["Ġthe"];
  const listed = json.added_tokens.map(({ content }: { content: string }) => content);
  const plain = { ...json.added_tokens.at(-1), id: 512, content: "<plain>", special: false };
  const withPlain = { ...json, added_tokens: [...json.added_tokens, plain] };
  const rows: [config: Record<string, unknown>, ids: Record<string, number>, json?: unknown][] = [
    [{ eos_token: "<new>" }, { "<new>": 512 }],
    [{ pad_token: "<p>", eos_token: { content: "<new>", lstrip: true } }, {
      "<new>": 512,
      "<p>": 513,
    }],
    [{ additional_special_tokens: ["<x>", listed[0], { content: "<y>" }] }, {
      "<x>": 512,
      "<y>": 513,
    }],
    [{ extra_special_tokens: { image_token: "<i>" }, bos_token: "<b>" }, {
      "<b>": 512,
      "<i>": 513,
    }],
    [{ image_token: "<i>", add_bos_token: true, pad_token: null }, { "<i>": 512 }],
    [{ eos_token: "Ġthe" }, { "Ġthe": top }],
    [{ extra_special_tokens: ["<plain>", "<x>"] }, { "<plain>": 512, "<x>": 513 }, withPlain],
  ];
  const unigram = {
    model: { type: "Unigram", unk_id: 0, vocab: [["<unk>", 0], ["▁", -1], ["a", -2]] },
    added_tokens: [],
  };
  for (const [config, ids, file = json] of rows) {
    const tokenizer = await openFiles({ "tokenizer.json": file, "tokenizer_config.json": config });
    for (const [text, id] of Object.entries(ids)) {
      assertEquals(tokenizer.encode(`a${text}b`), [64, id, 65], text);
      assertEquals(tokenizer.decode([64, id, 65], { skipSpecial: true }), "ab");
      assertEquals(tokenizer.encode(text, { specialTokens: false }).includes(id), false, text);
    }
    assertEquals(tokenizer.vocabSize, Math.max(512, ...Object.values(ids).map((id) => id + 1)));
  }
  const config = { eos_token: "<new>", unk_token: "<unk>" };
  const opened = await openFiles({ "tokenizer.json": unigram, "tokenizer_config.json": config });
  assertEquals([opened.kind, opened.encode("<new>"), opened.idOf("<unk>")], [
    "huggingface",
    [3],
    0,
  ]);
});

Deno.test("other kinds of tokenizer go through the library", async () => {
  const wordPiece = {
    added_tokens: [
      { id: 0, content: "[UNK]", special: true },
      { id: 1, content: "[CLS]", special: true },
    ],
    normalizer: { type: "Lowercase" },
    pre_tokenizer: { type: "BertPreTokenizer" },
    post_processor: null,
    decoder: { type: "WordPiece", prefix: "##", cleanup: false },
    model: {
      type: "WordPiece",
      unk_token: "[UNK]",
      continuing_subword_prefix: "##",
      max_input_chars_per_word: 100,
      vocab: { "[UNK]": 0, "[CLS]": 1, "un": 2, "##happy": 3, "dog": 4 },
    },
  };
  const tokenizer = await openFiles({ "tokenizer.json": wordPiece });
  assertEquals(tokenizer.kind, "huggingface");
  assertEquals(tokenizer.vocabSize, 5);
  assertEquals(tokenizer.encode("[CLS]Unhappy dog"), [1, 2, 3, 4]);
  assert(!tokenizer.encode("[CLS]", { specialTokens: false }).includes(1));
  assertEquals(tokenizer.decode([1, 2, 3, 4], { skipSpecial: true }), "unhappy dog");
  assertEquals(tokenizer.decode([]), "");
  const decoder = tokenizer.streamDecoder({ skipSpecial: true });
  const pieces = [1, 2, 3, 4].map((id) => decoder.push(id));
  assertEquals(pieces.join("") + decoder.flush(), "unhappy dog");
  assertStringIncludes((await userError(() => tokenizer.decode([5]))).message, "token id 5");

  const json = fixtureJson();
  json.model.continuing_subword_prefix = "##";
  assertEquals((await openFiles({ "tokenizer.json": json })).kind, "huggingface");
});

Deno.test("streamed text of SentencePiece is that of all ids", async () => {
  const pieces = ["<unk>", "<s>", "</s>", "a", "\u2581", "\u2581a", "<0xC3>", "<0xA9>"];
  pieces.push("<0xEF>", "<0xBB>", "<0xBF>");
  const blanks = { content: " ", pattern: { String: "\u2581" } };
  const sentencePiece = {
    added_tokens: pieces.slice(0, 3).map((content, id) => ({ id, content, special: true })),
    normalizer: null,
    pre_tokenizer: { type: "Metaspace", replacement: "\u2581", prepend_scheme: "first" },
    post_processor: null,
    decoder: {
      type: "Sequence",
      decoders: [
        { type: "Replace", ...blanks },
        { type: "ByteFallback" },
        { type: "Fuse" },
        { type: "Strip", content: " ", start: 1, stop: 0 },
      ],
    },
    model: {
      type: "BPE",
      unk_token: "<unk>",
      byte_fallback: true,
      vocab: Object.fromEntries(pieces.map((piece, id) => [piece, id])),
      merges: ["\u2581 a"],
    },
  };
  const tokenizer = await openFiles({ "tokenizer.json": sentencePiece });
  const ids = [5, 6, 7, 8, 9, 10, 2, 5, 1, 2, 4, 3];
  const cases = [[true, "aé\ufeff a a"], [false, "aé\ufeff</s> a<s></s> a"]] as const;
  for (const [skipSpecial, text] of cases) {
    assertEquals(tokenizer.decode(ids, { skipSpecial }), text);
    const decoder = tokenizer.streamDecoder({ skipSpecial });
    assertEquals(ids.map((id) => decoder.push(id)).join("") + decoder.flush(), text);
  }
  assertEquals(tokenizer.decode(tokenizer.encode("\ufeffé\ufeff")), "\ufeffé\ufeff");

  // Decoding all of them at each one would take minutes.
  const decoder = tokenizer.streamDecoder({ skipSpecial: true }), began = performance.now();
  const many = [5, ...new Array<number>(100_000).fill(2), 5];
  assertEquals(many.map((id) => decoder.push(id)).join(""), "a a");
  assert(performance.now() - began < 5000);
});

Deno.test("missing and broken files are refused with the file's name", async () => {
  assertStringIncludes(await refusal({}), "neither tokenizer.json nor vocab.json and merges.txt");
  assertStringIncludes(await refusal({ "vocab.json": {} }), "vocab.json without merges.txt");
  assertStringIncludes(await refusal({ "merges.txt": "" }), "merges.txt without vocab.json");
  assertStringIncludes(await refusal({ "tokenizer.json": "{" }), "tokenizer.json");
  assertStringIncludes(await refusal({ "tokenizer.json": {} }), "model type");
  const gpt2 = { "vocab.json": {}, "merges.txt": "", "tokenizer_config.json": {} };
  assertStringIncludes(await refusal(gpt2), "all 256 bytes");
  gpt2["tokenizer_config.json"] = { tokenizer_class: "GPT2Tokenizer" };
  assertStringIncludes(await refusal(gpt2), `tokenizer_class "GPT2Tokenizer"`);
});

Deno.test("contradictions in a tokenizer file are refused by name", async () => {
  type Json = ReturnType<typeof fixtureJson>;
  const cases: [(json: Json) => void, string][] = [
    [(json) => json.model.merges.push("zz y"), `token "zz"`],
    [(json) => json.model.merges.push("a b c"), "a merge of two"],
    [(json) => json.model.merges.push("a"), "a merge of two"],
    [(json) => json.model.merges.push(7), "expected"],
    [(json) => json.model.vocab["zz"] = 5, `id 5 for both "zz" and "&"`],
    [(json) => json.model.vocab["zz"] = 4e6, "an id below 2097152"],
    [(json) => json.model.vocab["zz"] = -1, "an id below 2097152"],
    [(json) => json.model.vocab["zz"] = 1.5, `expected "}"`],
    [(json) => json.added_tokens[1].id = 490, "id 490"],
    [(json) => json.added_tokens[1].id = 5, `"<|im_start|>" in `],
    [(json) => json.added_tokens[1].id = "5", "id of added token"],
    [(json) => json.added_tokens[1].content = "", "content of added token 491"],
    [(json) => json.added_tokens[1].content = "<|endoftext|>", "has two ids: 490 and 491"],
    [(json) => json.added_tokens[1].content = "self", "in the vocabulary it has id"],
    [(json) => json.added_tokens[1].single_word = true, "single_word"],
    [(json) => json.added_tokens = 3, "added_tokens"],
    [(json) => json.model.type = "Mystery", "Mystery"],
  ];
  for (const [change, expected] of cases) {
    const json = fixtureJson();
    change(json);
    assertStringIncludes(await refusal({ "tokenizer.json": json }), expected, `${change}`);
  }
});
