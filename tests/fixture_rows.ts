/** Reads rows of `fixtures`, such as golden values. */

/** The values of a file of JSON lines, by its path below `fixtures`. */
// deno-lint-ignore no-explicit-any -- tests look at any field
export function fixtureRows(path: string): any[] {
  const text = Deno.readTextFileSync(new URL(`../fixtures/${path}`, import.meta.url));
  return text.trim().split("\n").map((line) => JSON.parse(line));
}
