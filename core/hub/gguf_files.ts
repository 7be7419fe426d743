/** GGUF files of a repository: which of them a name such as `Q8_0` or `model-Q8_0.gguf` means. */
import { DataError } from "../base/errors.ts";
import { ioError } from "../base/files.ts";

/** A shard's place: `NAME-00001-of-00003.gguf`. */
const SHARD = /^(.*)-(\d{5})-of-(\d{5})\.gguf$/i;

/**
 * Paths of the file that is meant, or of all its shards, in order; undefined where there is none or not
 * all of it.
 * @throws {DataError} when the name fits several files
 */
export function chooseGguf(paths: readonly string[], wanted: string): string[] | undefined {
  const isFile = /\.gguf$/i.test(wanted);
  const tail = new RegExp(`(^|[-._/])${RegExp.escape(wanted)}$`, "i");
  const groups = new Map<string, string[]>();
  for (const path of paths.toSorted()) {
    if (!/\.gguf$/i.test(path)) continue;
    const stem = SHARD.exec(path)?.[1] ?? path.slice(0, -".gguf".length);
    if (isFile ? path !== wanted : !tail.test(stem) || /mmproj/i.test(stem)) continue;
    groups.set(stem, paths.filter((each) => each === path || SHARD.exec(each)?.[1] === stem));
  }
  if (groups.size > 1) {
    throw new DataError(
      `"${wanted}" fits ${groups.size} GGUF files: ${[...groups.keys()].join(", ")}`,
      { hints: ["name the file itself: OWNER/NAME:FILE.gguf"] },
    );
  }
  const [files] = groups.values();
  if (!files) return undefined;
  const sorted = files.toSorted();
  return sorted.length === Number(SHARD.exec(sorted[0]!)?.[3] ?? 1) ? sorted : undefined;
}

/** The same among the files of a folder; undefined where the folder is not there. */
export async function chooseGgufIn(folder: string, wanted: string): Promise<string[] | undefined> {
  const paths: string[] = [];
  const walk = async (under: string): Promise<void> => {
    for await (const { name, isDirectory } of Deno.readDir(`${folder}/${under}`)) {
      if (isDirectory) await walk(`${under}${name}/`);
      else paths.push(`${under}${name}`);
    }
  };
  try {
    await walk("");
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return undefined;
    throw ioError("read folder", folder, error);
  }
  return chooseGguf(paths, wanted);
}
