/** Links that tests make, on systems with and without symbolic links. */
import { cpSync } from "node:fs";
import { dirname, resolve } from "node:path";

function works(): boolean {
  const folder = Deno.makeTempDirSync();
  try {
    Deno.writeTextFileSync(`${folder}/target`, "");
    Deno.symlinkSync("target", `${folder}/link`, { type: "file" });
    return Deno.lstatSync(`${folder}/link`).isSymlink;
  } catch {
    return false;
  } finally {
    Deno.removeSync(folder, { recursive: true });
  }
}

/** True if symbolic links can be made: Windows takes a right for it, and Wine makes none. */
export const LINKS: boolean = works();

/** Makes a file or folder appear at `path`: a link, or a copy where there are no links. */
export function linkSync(target: string, path: string): void {
  const source = resolve(dirname(path), target);
  if (!LINKS) return cpSync(source, path, { recursive: true });
  Deno.symlinkSync(target, path, { type: Deno.statSync(source).isDirectory ? "dir" : "file" });
}
