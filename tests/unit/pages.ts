/** The documents that tests of their text read. */
import { fileURLToPath } from "node:url";

/** Folder of the project. */
export const ROOT = fileURLToPath(new URL("../../", import.meta.url));

/** Text of a file of the project. */
export const read = (path: string): string => Deno.readTextFileSync(ROOT + path);

/** Pages of the folder docs. */
export const DOCS = [...Deno.readDirSync(`${ROOT}docs`)].map(({ name }) => `docs/${name}`)
  .filter((path) => path.endsWith(".md")).sort();

/** All pages, by their paths in the project. */
export const PAGES = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", ...DOCS];
