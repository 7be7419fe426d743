/**
 * The files that go with the weights of a model: those of its folder, or what the metadata of a GGUF
 * file says in their place.
 */
import { isGgufName, type ModelFiles } from "../base/companions.ts";
import { parseJsonObject, readRegularFile, statIfExists } from "../base/files.ts";

/** Returns whether a path is a GGUF file. */
export async function isGguf(path: string): Promise<boolean> {
  return isGgufName(path) && (await statIfExists(path))?.isFile === true;
}

/** The files of a model, which is a folder or a GGUF file. */
export async function openModelFiles(model: string): Promise<ModelFiles> {
  if (!await isGguf(model)) return filesOf(model);
  return withJson((await import("./gguf/open.ts")).ggufFiles(model));
}

/** The files of a folder. */
export function filesOf(folder: string): ModelFiles {
  return withJson({
    model: folder,
    isGguf: false,
    has: async (name) => await statIfExists(`${folder}/${name}`) !== undefined,
    read: (name, maxBytes) => readRegularFile(`${folder}/${name}`, maxBytes),
  });
}

/** Adds the reading of JSON files. */
export function withJson(files: Omit<ModelFiles, "json">): ModelFiles {
  const { model, has, read } = files;
  const json = async (name: string) =>
    await has(name) ? parseJsonObject(await read(name), `${model}/${name}`) : {};
  return { ...files, json };
}

/**
 * `OWNER/NAME@COMMIT`, with `:FILE.gguf` for a file, of what lies in the hub's cache; undefined for other
 * paths.
 */
export function hubName(path: string): string | undefined {
  const [, owner, name, commit, file] =
    /models--([^/]+?)--([^/]+)\/snapshots\/([^/]+)(?:\/(.+\.gguf))?/i
      .exec(path.replaceAll("\\", "/")) ?? [];
  if (owner === undefined) return undefined;
  return `${owner}/${name}@${commit}${file === undefined ? "" : `:${file}`}`;
}

/** Returns whether a model has a tokenizer. */
export async function hasTokenizer(model: string | ModelFiles): Promise<boolean> {
  const { has } = typeof model === "string" ? await openModelFiles(model) : model;
  return await has("tokenizer.json") || await has("vocab.json");
}
