/**
 * Own encoder against @huggingface/tokenizers on one text of code and TeX, opening times, and the own
 * encoder on 8 MB of what makes words long or rare.
 */
import { RandomStream } from "../../core/base/random.ts";
import { openTokenizer } from "../../core/tokenizer/tokenizer.ts";
import { FIXTURE, openLibrary, qwenJson } from "../unit/tokenizer/testing.ts";

const json = await qwenJson() ?? Deno.readTextFileSync(`${FIXTURE}/tokenizer.json`);
const folder = Deno.makeTempDirSync({ prefix: "parscale-bench-" });
globalThis.addEventListener("unload", () => Deno.removeSync(folder, { recursive: true }));
Deno.writeTextFileSync(`${folder}/tokenizer.json`, json);

const own = await openTokenizer(folder);
const library = openLibrary(json);
const text = sourceAndFormulas();

/** This project's sources with numbered formulas between the lines: about 1 MB, words that vary. */
function sourceAndFormulas(): string {
  const sources = ["core/graph", "core/ops", "core/checkpoint", "core/tokenizer", "core/model"];
  const lines = sources.flatMap((name) => {
    const directory = new URL(`../../${name}/`, import.meta.url);
    return [...Deno.readDirSync(directory)].filter(({ isFile }) => isFile).flatMap((file) =>
      Deno.readTextFileSync(new URL(file.name, directory)).split("\n")
    );
  });
  const formula = (i: number) => `\\[ x_{${i}} = \\sum_{k=1}^{${i % 97}} \\frac{\\alpha_k}{k!} \\]`;
  let text = "";
  for (let i = 0; text.length < 1e6; i++) {
    text += lines[i % lines.length] + "\n";
    if (i % 8 === 0) text += formula(i) + "\n";
  }
  return text;
}

const kind = own.vocabSize > 1000 ? "Qwen2.5" : "small";

Deno.bench({
  name: `encode 1 MB, @huggingface/tokenizers, ${kind} tokenizer`,
  group: "encode",
  baseline: true,
  n: 5,
  warmup: 2,
  fn: () => void library.encode(text),
});

Deno.bench({
  name: `encode 1 MB, own encoder, ${kind} tokenizer`,
  group: "encode",
  n: 20,
  warmup: 2,
  fn: () => void own.encode(text),
});

Deno.bench({
  name: `open, @huggingface/tokenizers, ${kind} tokenizer`,
  group: "open",
  baseline: true,
  n: 5,
  warmup: 1,
  fn: () => void openLibrary(json),
});

Deno.bench({
  name: `open, own reader, ${kind} tokenizer`,
  group: "open",
  n: 10,
  warmup: 1,
  fn: async () => void await openTokenizer(folder),
});

/** Bytes of a long text; 1.6 s are 5 MB/s. */
const LONG = 8e6;

const stream = new RandomStream(1, "bench");
const bytes = Uint8Array.from({ length: LONG }, () => stream.integer(256));
const random = (first: number, count: number, bytes: number) =>
  Array.from({ length: LONG / bytes }, () => String.fromCodePoint(first + stream.integer(count)))
    .join("");
const LONG_TEXTS: Readonly<Record<string, string>> = {
  "one letter": "a".repeat(LONG),
  "spaces": " ".repeat(LONG),
  "random bytes as UTF-8": new TextDecoder().decode(bytes),
  "random bytes as Latin-1": new TextDecoder("latin1").decode(bytes),
  "one emoji": "😀".repeat(LONG / 4),
  "random emoji": random(0x1f600, 80, 4),
  "random digits": random(48, 10, 1),
  "random letters": random(97, 26, 1),
  "marks of two classes": "a" + "\u0301\u0323".repeat(LONG / 4),
};

for (const [name, text] of Object.entries(LONG_TEXTS)) {
  Deno.bench({
    name: `encode 8 MB, ${name}, ${kind} tokenizer`,
    group: "long",
    n: 3,
    warmup: 1,
    fn: () => void own.encode(text),
  });
}
