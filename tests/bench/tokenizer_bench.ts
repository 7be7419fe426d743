/** Own encoder against @huggingface/tokenizers on one text of code and TeX. */
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

for (
  const [name, encoder] of [["@huggingface/tokenizers", library], ["own encoder", own]] as const
) {
  Deno.bench({
    name: `encode 1 MB, ${name}, ${kind} tokenizer`,
    group: "encode",
    baseline: encoder === library,
    n: 10,
    warmup: 2,
    fn: () => void encoder.encode(text),
  });
}
