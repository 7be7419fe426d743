/** Tokenizers of GGUF files: ids equal those of the folder's `tokenizer.json`, framed as the file says. */
import { assertEquals, assertStringIncludes } from "@std/assert";
import { openTokenizer } from "../../../core/tokenizer/tokenizer.ts";
import { GPT2_PATTERNS, LLAMA3_PATTERN } from "../../../core/tokenizer/word_splitter.ts";
import { type Entry, type GgufOptions, writeGguf, writeTinyFolder } from "../../gguf_model.ts";
import { withScratch } from "../../scratch.ts";
import { userError } from "../checkpoint/testing.ts";
import { byteLevel, mixedText, sequence, split } from "./testing.ts";

/** Fields of `tokenizer.json` by the name that GGUF has for them. */
const LAYOUTS: Readonly<Record<string, Record<string, unknown>>> = {
  "qwen2": {},
  "deepseek-r1-qwen": {},
  "llama-bpe": {
    normalizer: null,
    pre_tokenizer: sequence(split(LLAMA3_PATTERN), byteLevel(false)),
  },
  "smollm": {
    normalizer: null,
    pre_tokenizer: sequence({ type: "Digits", individual_digits: true }, byteLevel(true)),
  },
  "gpt-2": {
    normalizer: null,
    pre_tokenizer: sequence(split(GPT2_PATTERNS[0]!), byteLevel(false)),
  },
};

Deno.test("1,000 texts have the ids of tokenizer.json, in every layout", () =>
  withScratch(async (scratch) => {
    const folder = `${scratch}/folder`, path = `${scratch}/model.gguf`;
    await writeTinyFolder(folder, "llama");
    const json = JSON.parse(await Deno.readTextFile(`${folder}/tokenizer.json`));
    for (const [pre, layout] of Object.entries(LAYOUTS)) {
      const model = { ...json.model, ignore_merges: pre === "llama-bpe" };
      const text = JSON.stringify({ ...json, ...layout, model });
      await Deno.writeTextFile(`${folder}/tokenizer.json`, text);
      const metadata: Record<string, Entry> = { "tokenizer.ggml.pre": ["string", pre] };
      await writeGguf(path, folder, { metadata });
      const [ofFile, ofFolder] = [await openTokenizer(path), await openTokenizer(folder)];
      assertEquals([ofFile.kind, ofFolder.kind], Array(2).fill("byte-level-bpe"));
      for (let seed = 0; seed < 1000; seed++) {
        const text = mixedText(seed);
        assertEquals(ofFile.encode(text), ofFolder.encode(text), JSON.stringify(text));
      }
    }
  }));

/** Calls `body` with a function that writes a small file with these fields, and returns its path. */
const withFile = (
  body: (write: (metadata: GgufOptions["metadata"]) => Promise<string>) => Promise<void>,
) =>
  withScratch(async (scratch) => {
    const folder = `${scratch}/folder`, path = `${scratch}/model.gguf`;
    await writeTinyFolder(folder, "llama");
    await body((metadata) => writeGguf(path, folder, { metadata }).then(() => path));
  });

Deno.test("a file without a tokenizer is told to become a folder with one", () =>
  withFile(async (write) => {
    const path = await write({ "tokenizer.ggml.model": undefined });
    const { message, hints } = await userError(() => openTokenizer(path));
    assertEquals(message, `"${path}" has no tokenizer`);
    assertStringIncludes(hints.join(), "`parscale convert`");
  }));

Deno.test("a BOS token that a converter took from Qwen's config.json is not one of its tokenizer", () =>
  withFile(async (write) => {
    const bos = async (pre: string) => {
      const id: Entry = ["u32", 64];
      const path = await write({
        "tokenizer.ggml.pre": ["string", pre],
        "tokenizer.ggml.bos_token_id": id,
      });
      return (await openTokenizer(path)).namedTokens.bos_token;
    };
    assertEquals([await bos("smollm"), await bos("qwen2")], ["a", undefined]);
  }));

Deno.test("a file may have a template of its own for tools", () =>
  withFile(async (write) => {
    const path = await write({
      "tokenizer.chat_template": ["string", "plain"],
      "tokenizer.chat_template.tool_use": ["string", "{{ tools | length }} tools"],
    });
    const { chatTemplate, toolTemplate } = await openTokenizer(path);
    assertEquals([chatTemplate, toolTemplate], ["plain", "{{ tools | length }} tools"]);
  }));

Deno.test("BOS and EOS tokens frame texts as the file says", () =>
  withFile(async (write) => {
    const encoded = async (more: Record<string, Entry>) => {
      const path = await write({ "tokenizer.ggml.bos_token_id": ["u32", 491], ...more });
      return (await openTokenizer(path)).encode("a");
    };
    const llama: Record<string, Entry> = { "tokenizer.ggml.pre": ["string", "llama-bpe"] };
    const adds = (token: string, on: number): Record<string, Entry> => ({
      [`tokenizer.ggml.add_${token}_token`]: ["bool", on],
    });
    assertEquals(await encoded({}), [64]);
    assertEquals(await encoded(llama), [491, 64]);
    assertEquals(await encoded({ ...llama, ...adds("bos", 0) }), [64]);
    assertEquals(await encoded({ ...adds("bos", 1), ...adds("eos", 1) }), [491, 64, 490]);
  }));
