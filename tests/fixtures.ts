/** Places of the repository, and what its `fixtures` hold. */
import { fileURLToPath } from "node:url";

/** Folder of the project. */
export const ROOT = fileURLToPath(new URL("../", import.meta.url));

/** Folder of the fixtures. */
export const FIXTURES = `${ROOT}fixtures/`;

/** The value of a JSON file, such as golden values, by its path below `fixtures`. */
// deno-lint-ignore no-explicit-any -- tests look at any field
export const readFixture = (path: string): any =>
  JSON.parse(Deno.readTextFileSync(FIXTURES + path));

/** The values of a file of JSON lines, by its path below `fixtures`. */
// deno-lint-ignore no-explicit-any -- tests look at any field
export function fixtureRows(path: string): any[] {
  const text = Deno.readTextFileSync(FIXTURES + path);
  return text.trim().split("\n").map((line) => JSON.parse(line));
}
