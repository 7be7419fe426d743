/**
 * The memory snapshot from which interpreters start: ten times faster than loading one.
 *
 * The name holds a hash of all that the snapshot depends on; a seal beside it tells a damaged one.
 */
import { hash } from "node:crypto";
import { childCommand } from "./command.ts";
import { RUNNER } from "./runner_text.ts";
import { replaceFile } from "../../base/platform/rename.ts";

/** Part of the name; raised when the worker prepares its interpreter in another way. */
const FORMAT = 2;

/** A usable snapshot for the interpreter in `folder`; null where none can be made. */
export async function ensureSnapshot(cacheFolder: string, folder: string): Promise<string | null> {
  try {
    const about = await Deno.readTextFile(`${folder}package.json`);
    const name = hash("sha256", JSON.stringify([FORMAT, Deno.version, about, RUNNER]));
    const path = `${cacheFolder}/python-${name.slice(0, 16)}.snapshot`;
    if (await sealed(path)) return path;
    await Deno.mkdir(cacheFolder, { recursive: true });
    const child = childCommand({
      shell: "none",
      // Renaming needs the right to read as well.
      read: [folder, cacheFolder],
      write: [cacheFolder],
      args: [folder, path],
    }).spawn();
    await child.stdin.close();
    await child.output();
    await seal(path);
    return path;
  } catch {
    return null;
  }
}

async function sealed(path: string): Promise<boolean> {
  try {
    const seal = await Deno.readTextFile(`${path}.sha256`);
    return seal === hash("sha256", await Deno.readFile(path));
  } catch {
    return false;
  }
}

async function seal(path: string): Promise<void> {
  await replaceFile(`${path}.sha256`, hash("sha256", await Deno.readFile(path)));
}
