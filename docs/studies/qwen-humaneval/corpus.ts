/**
 * Builds the corpus of the study of Qwen on HumanEval:
 * `deno task qwen-corpus OUT PYTHON LIBRARY HUMANEVAL`.
 *
 * PYTHON runs `functions.py` over LIBRARY, the folder of a Python standard library; HUMANEVAL is the file of
 * the benchmark, `.jsonl.gz`. A function that shares ten words in a row with a problem or its solution is
 * left out. Functions are split by the hash of their text. Writes `train.jsonl`, `held_out.jsonl` and
 * `corpus.json` with counts and hashes.
 */
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { selectFiles, sha256 } from "../small-law/corpus.ts";

const FUNCTIONS = fileURLToPath(new URL("functions.py", import.meta.url));

/** Functions of the held-out file. */
const HELD_OUT = 80;

const GRAM = 10;

/** Runs of ten words or marks, or of other parts. */
export function* gramsOf(text: string, parts = /\w+|[^\w\s]/g): Generator<string> {
  const words = text.toLowerCase().match(parts) ?? [];
  for (let i = 0; i + GRAM <= words.length; i++) yield words.slice(i, i + GRAM).join(" ");
}

/** Lines of a packed file. */
export async function readGzip(path: string): Promise<string[]> {
  using file = await Deno.open(path);
  const stream = file.readable.pipeThrough(new DecompressionStream("gzip"));
  return (await new Response(stream).text()).trim().split("\n");
}

/** Grams of all problems and their solutions. */
async function benchmarkGrams(path: string): Promise<ReadonlySet<string>> {
  return new Set((await readGzip(path)).flatMap((line) => {
    const { prompt, canonical_solution } = JSON.parse(line);
    return [...gramsOf(prompt + canonical_solution)];
  }));
}

async function write(out: string, name: string, texts: readonly { hash: string; text: string }[]) {
  const rows = texts.map(({ hash: id, text }) => `${JSON.stringify({ id, text })}\n`).join("");
  await Deno.writeTextFile(join(out, `${name}.jsonl`), rows);
  const characters = texts.reduce((sum, { text }) => sum + text.length, 0);
  return { functions: texts.length, characters, sha256: await sha256(rows) };
}

if (import.meta.main) {
  const [out, python, library, humaneval] = Deno.args;
  if (!out || !python || !library || !humaneval) {
    throw new Error("usage: deno task qwen-corpus OUT PYTHON LIBRARY HUMANEVAL");
  }
  await Deno.mkdir(out, { recursive: true });
  const run = new Deno.Command(python, { args: [FUNCTIONS, library], stderr: "inherit" });
  const { success, stdout } = await run.output();
  if (!success) throw new Error(`${python} ${FUNCTIONS} has failed`);
  const lines = new TextDecoder().decode(stdout).trim().split("\n");
  const found: string[] = lines.map((line) => JSON.parse(line).text);
  const grams = await benchmarkGrams(humaneval);
  const clean = found.filter((text) => !gramsOf(text).some((gram) => grams.has(gram)));
  const texts = await selectFiles(clean, () => true);
  const counts = {
    found: found.length,
    left_out: found.length - clean.length,
    train: await write(out, "train", texts.slice(HELD_OUT)),
    held_out: await write(out, "held_out", texts.slice(0, HELD_OUT)),
  };
  const json = JSON.stringify(counts, null, 2);
  await Deno.writeTextFile(join(out, "corpus.json"), `${json}\n`);
  console.log(json);
}
