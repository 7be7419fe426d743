/** Phrases that the project does not use: set pieces, riddles, and home-made words for standard terms. */
import { assertEquals } from "@std/assert";
import { ROOT } from "../fixtures.ts";

/** Words and phrases for which the field has another word. */
const PHRASES: readonly RegExp[] = [
  /\b(kernel|attention|tuning) (trials?|races?)\b/i,
  /\bdecod\w+ ahead\b/i,
  /\bdrawn tokens?\b/i,
  /\btakeTurn\b|\bdriveOut\b|\bdrive out again\b/,
  /\bbeginnings? of weights\b/i,
  /\bmixtures\b/i,
  /\bpeaks\b/i,
  /\b(split \+ combine|visible table)\b/i,
  /\bwiden(s|ed|ing|Into)?\b/i,
  /\bfixed weights?\b/i,
  /\bmacros\b/i,
  /\bgeometry\b(?!",)/i,
  /\b(trunks?|rungs?|twins?|strangers?)\b/i,
  /\b(judge(s|d|ment)?|oracles?|verdicts?)\b/i,
  /\bhost part\b/i,
  /\bworked off\b/i,
  /\bweighs\b/i,
  /\bpacked or not\b/i,
  /\b(go(es|ing)?|went) on\b/i,
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
  /(?<!\b(t?here|it) )\b(is|are|was|were) no (?!longer\b|more\b)/i,
  /\bbeginnings?\b(?!-of-text| of weights)/i,
  /\bhears?\b/i,
  /\blooked (at|into)\b/i,
  /\bmakes? no sense\b/i,
  /\bso many\b/i,
];

/** Words that are the field's in CUDA alone. */
const CUDA_WORDS: readonly RegExp[] = [/\blanes?\b/i];

/** Doc comments that begin with a relative clause in place of a noun phrase or a verb. */
const OPENING = /\/\*\*\s+(\* )?(What|How|Where|Which|Whether|Who)\b/g;

/** Phrases of messages: they say what is wrong, not what was "found", and start in lower case. */
const MESSAGE_PHRASES: readonly RegExp[] = [/["'`]Cannot /, /: found no /, /\bfound nothing\b/];

/** Files with other authors' words, or words of a test's data. */
const EXCEPT = ["tests/unit/language_test.ts"];

function* sources(folder: string, kind = /\.(ts|cu|cuh|hpp|cpp|py)$/): Generator<string> {
  for (const { name, isDirectory } of Deno.readDirSync(`${ROOT}${folder}`)) {
    const path = `${folder}/${name}`;
    if (isDirectory) yield* sources(path, kind);
    else if (kind.test(name)) yield path;
  }
}

/** Lines of a file that match one of the phrases, names split into words, with their places. */
function matches(path: string, phrases: readonly RegExp[]): string[] {
  return Deno.readTextFileSync(`${ROOT}${path}`).split("\n").flatMap((line, index) => {
    const words = line.replace(/(?<=[a-z])(?=[A-Z])/g, " ");
    const isFound = phrases.some((phrase) => phrase.test(line) || phrase.test(words));
    return isFound ? [`${path}:${index + 1}: ${line.trim()}`] : [];
  });
}

/** Lines of source files that match one of the phrases. */
function linesWith(phrases: readonly RegExp[], folders: readonly string[]): string[] {
  return folders.flatMap((folder) => [...sources(folder)])
    .filter((path) => !EXCEPT.includes(path))
    .flatMap((path) => matches(path, phrases));
}

Deno.test("comments, messages and test names use plain technical English", () => {
  assertEquals(linesWith(PHRASES, ["core", "cli", "kernels", "tests"]), []);
});

Deno.test("lanes are those of a warp", () => {
  assertEquals(linesWith(CUDA_WORDS, ["core", "cli"]), []);
});

Deno.test("documents use the words of the code", () => {
  const pages = ["README.md", "CONTRIBUTING.md", "SECURITY.md", ...sources("docs", /\.md$/)];
  assertEquals(pages.flatMap((path) => matches(path, PHRASES)), []);
});

Deno.test("doc comments begin with a noun phrase or a verb", () => {
  const found = ["core", "cli", "kernels", "docs", "fixtures", "tests"]
    .flatMap((folder) => [...sources(folder)])
    .flatMap((path) =>
      [...Deno.readTextFileSync(`${ROOT}${path}`).matchAll(OPENING)].map(([text]) =>
        `${path}: ${text}`
      )
    );
  assertEquals(found, []);
});

Deno.test("messages start in lower case and do not tell what was found", () => {
  assertEquals(linesWith(MESSAGE_PHRASES, ["core", "cli"]), []);
});
