/**
 * Spelling of the documents: every word outside code is in the dictionary or in `words.txt`, the words of
 * the field and of the project.
 */
import { assert, assertEquals } from "@std/assert";
import dictionary from "dictionary-en";
import nspell from "nspell";
import { PAGES, read } from "./pages.ts";

/** Words of a page without code, addresses and targets of links. */
function words(page: string): string[] {
  const prose = read(page).replace(/^```[\s\S]*?^```$/gm, "").replace(/`[^`]*`/g, "")
    .replace(/\]\([^)]*\)/g, "]").replace(/https?:\S+/g, "");
  return [...prose.matchAll(/\p{L}[\p{L}'’]*\p{L}/gu)].map(([word]) => word.replaceAll("’", "'"));
}

Deno.test("every word of the documents is in the dictionary or in the project's list", () => {
  const own = read("tests/unit/words.txt").trim().split(/\s+/);
  assertEquals(own, own.toSorted((a, b) => a < b ? -1 : 1), "words.txt is sorted");
  const listed = new Set(own), used = new Set<string>();
  const spelling = nspell(dictionary);
  assert(!spelling.correct("speling"), "the dictionary is read");
  const unknown = PAGES.flatMap((page) =>
    words(page).filter((word) => {
      const stem = word.replace(/'s$/, "");
      if (listed.has(stem)) used.add(stem);
      return !listed.has(stem) && !spelling.correct(word);
    }).map((word) => `${page}: ${word}`)
  );
  assertEquals(unknown, []);
  assertEquals(own.filter((word) => !used.has(word)), [], "words.txt has words that are not used");
});
