/** The documents that tests of their text read. */
import { ROOT } from "../fixtures.ts";

/** Text of a file of the project. */
export const read = (path: string): string => Deno.readTextFileSync(ROOT + path);

const namesIn = (folder: string) =>
  [...Deno.readDirSync(ROOT + folder)].map(({ name }) => `${folder}/${name}`).sort();

/** Pages of the folder docs, those of the studies last. */
export const DOCS = [
  ...namesIn("docs").filter((path) => path.endsWith(".md")),
  ...namesIn("docs/studies").map((folder) => `${folder}/README.md`),
];

/** All pages, by their paths in the project. */
export const PAGES = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", ...DOCS];
