/** `THIRD_PARTY_NOTICES.md`: name, version, licence and licence text of every package in a release. */
import type { Package } from "./packages.ts";

export const NOTICES_FILE = "THIRD_PARTY_NOTICES.md";

/** Text of the notices. A package without a licence file is listed by the licence it states. */
export async function notices(packages: readonly Package[]): Promise<string> {
  const rows = packages.map(({ name, version, license }) =>
    `| ${name} | ${version} | ${license} |`
  );
  const texts: string[] = [];
  for (const { name, version, folder } of packages) {
    const text = await licenceText(folder);
    if (text !== undefined) texts.push(`## ${name} ${version}`, fenced(text));
  }
  const table = ["| package | version | licence |", "|---|---|---|", ...rows].join("\n");
  return ["# Packages in this release", table, ...texts].join("\n\n") + "\n";
}

/** Licence files of a package, one after the other; undefined where it brings none. */
async function licenceText(folder: string): Promise<string | undefined> {
  const names = [...Deno.readDirSync(folder)].map(({ name }) => name)
    .filter((name) => /^(licen[cs]e|copying|notice|thirdparty|third[-_]party)/i.test(name)).sort();
  const texts: string[] = [];
  for (const name of names) {
    const path = `${folder}/${name}`;
    if (Deno.statSync(path).isFile) texts.push((await Deno.readTextFile(path)).trim());
  }
  return texts.length > 0 ? texts.join("\n\n") : undefined;
}

/** As a block of text that holds any fence of its own. */
function fenced(text: string): string {
  const longest = Math.max(0, ...[...text.matchAll(/`{3,}/g)].map(([fence]) => fence.length));
  const fence = "`".repeat(Math.max(3, longest + 1));
  return `${fence}text\n${text}\n${fence}`;
}
