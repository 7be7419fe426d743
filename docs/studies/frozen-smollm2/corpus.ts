/**
 * Builds the corpus of the study of a frozen model: `deno task frozen-corpus OUT PYTHON ENGLISH`.
 *
 * PYTHON is the folder of a Python standard library and ENGLISH one of package documentation, such as
 * Debian's. Files are split by the hash of their text. Writes `train.jsonl`, `validation.jsonl` (Python,
 * which only chooses rates), `python.jsonl` and `english.jsonl` (held-out documents, which choose
 * nothing), and `corpus.json` with their counts and hashes.
 */
import { join } from "node:path";
import { selectFiles, sha256 } from "../small-law/corpus.ts";

/** Held-out documents: how many, and their length. The first third of a file is often a licence. */
const HELD_OUT = { python: 60, validation: 20, english: 60, characters: 1600 };
/** Training text: enough for four times 150,000 tokens without a repetition. */
const TRAIN_CHARACTERS = 3_000_000;

interface Document {
  /** SHA-256 of the text, which also decides its place. */
  readonly id: string;
  readonly text: string;
}

/** Returns whether a text is long enough for an excerpt, and not mostly numbers or marks. */
function isKept(text: string): boolean {
  const letters = text.match(/[A-Za-z ]/g)?.length ?? 0;
  return text.length >= 3000 && letters > 0.6 * text.length;
}

/** Paths of all files below a folder but tests, tables of characters, lists of changes and packages. */
async function* filesBelow(folder: string): AsyncGenerator<string> {
  const skipped =
    /^(tests?|idle_test|lib2to3|encodings|RelNotes|site-packages|dist-packages|__pycache__)$/;
  for await (const { name, isDirectory, isFile } of Deno.readDir(folder)) {
    if (isDirectory && !skipped.test(name)) yield* filesBelow(join(folder, name));
    else if (isFile) yield join(folder, name);
  }
}

/** Texts of a folder's files in the order of their hashes, without duplicates. */
async function documentsOf(folder: string, names: RegExp): Promise<Document[]> {
  const texts: string[] = [];
  for await (const path of filesBelow(folder)) {
    if (!names.test(path)) continue;
    try {
      texts.push(new TextDecoder("utf-8", { fatal: true }).decode(await Deno.readFile(path)));
    } catch {
      // not UTF-8
    }
  }
  return (await selectFiles(texts, isKept)).map(({ hash: id, text }) => ({ id, text }));
}

/** A part of a document from its second third, whole lines. */
function excerpt({ id, text }: Document): Document {
  const start = text.indexOf("\n", Math.floor(text.length / 3)) + 1;
  const end = text.lastIndexOf("\n", start + HELD_OUT.characters) + 1;
  return { id, text: text.slice(start, end > start ? end : start + HELD_OUT.characters) };
}

async function write(out: string, name: string, rows: readonly Document[]) {
  const lines = rows.map((row) => `${JSON.stringify(row)}\n`).join("");
  await Deno.writeTextFile(join(out, `${name}.jsonl`), lines);
  const characters = rows.reduce((sum, { text }) => sum + text.length, 0);
  return { documents: rows.length, characters, sha256: await sha256(lines) };
}

if (import.meta.main) {
  const [out, python, english] = Deno.args;
  if (!out || !python || !english) {
    throw new Error("usage: deno task frozen-corpus OUT PYTHON ENGLISH");
  }
  await Deno.mkdir(out, { recursive: true });
  const code = await documentsOf(python, /\.py$/);
  const prose = await documentsOf(english, /\/(README[^/]*|NEWS[^/]*|[^/]*\.(txt|md|rst))$/);
  const held = code.splice(0, HELD_OUT.python + HELD_OUT.validation);
  let characters = 0;
  const train = code.filter(({ text }) => (characters += text.length) <= TRAIN_CHARACTERS);
  const counts = {
    train: await write(out, "train", train),
    validation: await write(out, "validation", held.slice(HELD_OUT.python).map(excerpt)),
    python: await write(out, "python", held.slice(0, HELD_OUT.python).map(excerpt)),
    english: await write(out, "english", prose.slice(0, HELD_OUT.english).map(excerpt)),
  };
  await Deno.writeTextFile(join(out, "corpus.json"), `${JSON.stringify(counts, null, 2)}\n`);
  console.log(JSON.stringify(counts, null, 2));
}
