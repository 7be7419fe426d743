/** Shared by the tokenizer tests and bench: fixture, real tokenizer, library, texts. */
import { dirname } from "node:path";
import { Tokenizer as Library } from "@huggingface/tokenizers";
import { RandomStream } from "../../../core/base/random.ts";
import { openTokenizer, type Tokenizer } from "../../../core/tokenizer/tokenizer.ts";
import { FIXTURES, readFixture, ROOT } from "../../fixtures.ts";
import { withScratch } from "../../scratch.ts";

/** Folder with the small tokenizer. */
export const FIXTURE = `${FIXTURES}models/qwen2-p1-tied-f32`;

/** The small `tokenizer.json`, fresh at each call. */
// deno-lint-ignore no-explicit-any -- tests put all sorts of nonsense into it
export function fixtureJson(): Record<string, any> {
  return readFixture("models/qwen2-p1-tied-f32/tokenizer.json");
}

/** Text of Qwen2.5's `tokenizer.json`, or undefined where it does not lie beside the project. */
export async function qwenJson(): Promise<string | undefined> {
  try {
    const file = await Deno.open(`${ROOT}../shared/data/qwen-tokenizer/tokenizer.json.gz`);
    return await new Response(file.readable.pipeThrough(new DecompressionStream("gzip"))).text();
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return undefined;
    throw error;
  }
}

/** Opens a tokenizer made of the files given; other values are written as JSON. */
export const openFiles = (files: Record<string, unknown>): Promise<Tokenizer> =>
  withScratch((folder) => {
    for (const [name, content] of Object.entries(files)) {
      const text = typeof content === "string" ? content : JSON.stringify(content);
      Deno.mkdirSync(dirname(`${folder}/${name}`), { recursive: true });
      Deno.writeTextFileSync(`${folder}/${name}`, text);
    }
    return openTokenizer(folder);
  });

/** Pre-tokenizers as `tokenizer.json` has them. */
export const byteLevel = (use_regex: boolean) => ({
  type: "ByteLevel",
  add_prefix_space: false,
  trim_offsets: true,
  use_regex,
});
export const split = (Regex: string) => ({
  type: "Split",
  pattern: { Regex },
  behavior: "Isolated",
  invert: false,
});
export const sequence = (...pretokenizers: unknown[]) => ({ type: "Sequence", pretokenizers });

/** The library on the same file, with ids only. */
export function openLibrary(text: string) {
  const library = new Library(JSON.parse(text), { clean_up_tokenization_spaces: false });
  return {
    encode: (text: string): number[] => library.encode(text).ids,
    decode: (ids: number[]): string => ids.length === 0 ? "" : library.decode(ids),
  };
}

const PIECES = [
  "function f(x: number) {\n\treturn x * 2; // it's ok\n}\n",
  "for i in range(10):\n    print(f'{i:>3}')\r\n",
  "\\frac{\\partial^2 u}{\\partial x^2} = \\sum_{i=1}^{N} \\alpha_i e^{-\\lambda_i t} $\\to$ ",
  "We'll SEE they'RE here, I'm sure; 'tis John'S 'Dog, 'ſtrange ",
  "1234567890 3.14159 ²½ Ⅷ ٣٤٥ १२३ ",
  "Größe, naïve façade, Ångström, İstanbul ",
  "Привет, мир! Ἀθῆναι. שלום עולם مرحبا بالعالم नमस्ते দুনিয়া สวัสดีชาวโลก ",
  "你好,世界。こんにちは、カタカナ ｶﾀｶﾅ 안녕하세요 한글 𠀀𪛖 𝕳𝖊𝖑𝖑𝖔 ",
  "👩‍👩‍👧‍👦 👍🏽 🇩🇪🇫🇷 ☎️ 🏴‍☠️ ",
  "e\u0301 a\u0308\u0323 \u1100\u1161\u11a8 \u0344 \u212b \ufb01 q\u0307\u0323 \u0301\u0301",
  "\u00a0\u2003\u3000 \u0085\u0085 \u2028\u2029 \ufeff\ufeff \u200b\u200d \u180e \u001c\u001f\v\f ",
  "   \n\n  \r\n \t\t \n x \n   ",
  "<|im_start|>user\nHi<|im_end|>\n<|endoftext|><tool_call>{}</tool_call><|im_end|<|im_end|>>",
  "<|fim_prefix|> <|file_sep|>\n<|vision_pad|>x",
  "a".repeat(300),
  " ".repeat(130),
  "=-".repeat(90),
  "\n".repeat(40),
  "é".repeat(150),
  "abcdefghij".repeat(20),
  "\u0000\u0001\u007f\u00ad\ufffd\uffff",
];

/** Makes a text of cut and mixed pieces; equal seeds give equal texts. */
export function mixedText(seed: number): string {
  const stream = new RandomStream(seed, "text");
  const below = (limit: number) => stream.integer(limit);
  let text = "";
  for (let i = below(8); i >= 0; i--) {
    const piece = [...PIECES[below(PIECES.length)]!];
    const from = below(piece.length);
    text += piece.slice(from, from + 1 + below(piece.length)).join("");
    if (below(4) === 0) text += String.fromCodePoint(below(0x3000));
  }
  return text;
}
