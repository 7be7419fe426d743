/** Phrases that the project does not use: set pieces, riddles, and home-made words for standard terms. */
import { fileURLToPath } from "node:url";
import { assertEquals } from "@std/assert";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));

/** Only phrases that mean nothing else. The rest of the word list is a matter of reading. */
const PHRASES: readonly RegExp[] = [
  /\bComes in:/,
  /\bGoes out:/,
  /\bWhat (may )?surprises?\b/,
  /\bSee the head of this file\b/,
  /\b(no|some)body\b/i,
  /\bwhoever\b/i,
  /\bto the (letter|bit)\b/,
  /\bisDistant\b/,
  /\boddit(y|ies)\b/i,
  /\bskinny\b/i,
  /\btoken ring\b/i,
  /\bfree parameter\b/i,
  /\bnull tests?\b/i,
  /\blast crumb\b/,
  /\bbehind the host's back\b/,
  /\btakes? the process along\b/,
  /\bknob\b.*\bturn/,
  /\bprompt cache\b/i,
];

/** Phrases of messages: they say what is wrong, not what was "found", and start in lower case. */
const MESSAGE_PHRASES: readonly RegExp[] = [/["'`]Cannot /, /: found no /, /\bfound nothing\b/];

/** Files with other authors' words, or words of a test's data. */
const EXCEPT = ["tests/unit/language_test.ts"];

function* sources(folder: string): Generator<string> {
  for (const { name, isDirectory } of Deno.readDirSync(`${ROOT}${folder}`)) {
    const path = `${folder}/${name}`;
    if (isDirectory) yield* sources(path);
    else if (/\.(ts|cu|cuh|hpp|cpp|py)$/.test(name)) yield path;
  }
}

/** Lines of source files that match one of the phrases, with their places. */
function linesWith(phrases: readonly RegExp[], folders: readonly string[]): string[] {
  return folders.flatMap((folder) => [...sources(folder)])
    .filter((path) => !EXCEPT.includes(path))
    .flatMap((path) =>
      Deno.readTextFileSync(`${ROOT}${path}`).split("\n").flatMap((line, index) =>
        phrases.some((phrase) => phrase.test(line)) ? [`${path}:${index + 1}: ${line.trim()}`] : []
      )
    );
}

Deno.test("comments, messages and test names use plain technical English", () => {
  assertEquals(linesWith(PHRASES, ["core", "cli", "kernels", "tests"]), []);
});

Deno.test("messages start in lower case and do not tell what was found", () => {
  assertEquals(linesWith(MESSAGE_PHRASES, ["core", "cli"]), []);
});
