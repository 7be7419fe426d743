/** Tokenizers of GGUF files: ids equal those of the folder's `tokenizer.json`, framed as the file says. */
import { assertEquals } from "@std/assert";
import { openTokenizer } from "../../../core/tokenizer/tokenizer.ts";
import { GPT2_PATTERNS, LLAMA3_PATTERN } from "../../../core/tokenizer/word_splitter.ts";
import { type Entry, writeGguf, writeTinyFolder } from "../../gguf_model.ts";
import { withScratch } from "../../scratch.ts";
import { mixedText } from "./testing.ts";

const byteLevel = (use_regex: boolean) => ({
  type: "ByteLevel",
  add_prefix_space: false,
  trim_offsets: true,
  use_regex,
});
const split = (Regex: string) => ({
  type: "Split",
  pattern: { Regex },
  behavior: "Isolated",
  invert: false,
});
const sequence = (...pretokenizers: unknown[]) => ({ type: "Sequence", pretokenizers });

/** Fields of `tokenizer.json` by the name that GGUF has for them. */
const LAYOUTS: Readonly<Record<string, Record<string, unknown>>> = {
  "qwen2": {},
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
      await Deno.writeTextFile(
        `${folder}/tokenizer.json`,
        JSON.stringify({ ...json, ...layout, model }),
      );
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

Deno.test("beginning and end tokens frame texts as the file says", () =>
  withScratch(async (scratch) => {
    const folder = `${scratch}/folder`, path = `${scratch}/model.gguf`;
    await writeTinyFolder(folder, "llama");
    const encoded = async (metadata: Record<string, Entry>) => {
      const bos: Record<string, Entry> = { "tokenizer.ggml.bos_token_id": ["u32", 491] };
      await writeGguf(path, folder, { metadata: { ...bos, ...metadata } });
      return (await openTokenizer(path)).encode("a");
    };
    const llama: Entry = ["string", "llama-bpe"];
    assertEquals(await encoded({}), [64]);
    assertEquals(await encoded({ "tokenizer.ggml.pre": llama }), [491, 64]);
    const off: Entry = ["bool", 0], on: Entry = ["bool", 1];
    assertEquals(
      await encoded({ "tokenizer.ggml.pre": llama, "tokenizer.ggml.add_bos_token": off }),
      [64],
    );
    assertEquals(
      await encoded({ "tokenizer.ggml.add_bos_token": on, "tokenizer.ggml.add_eos_token": on }),
      [491, 64, 490],
    );
  }));
