/**
 * The files that go with the weights of a model: those of its folder, or what the metadata of a GGUF
 * file says in their place.
 */
import { isGgufName } from "../base/companions.ts";
import { type JsonObject, parseJsonObject, readRegularFile, statIfExists } from "../base/files.ts";

/** Files beside the weights of one model. */
export interface ModelFiles {
  has(name: string): Promise<boolean>;
  /** Bytes of a file that there is. */
  read(name: string, maxBytes?: number): Promise<Uint8Array<ArrayBuffer>>;
  /** Fields of a JSON file; none where there is no such file. */
  json(name: string): Promise<JsonObject>;
}

/** Returns whether a path is a GGUF file. */
export async function isGguf(path: string): Promise<boolean> {
  return isGgufName(path) && (await statIfExists(path))?.isFile === true;
}

/** The files of a model, which is a folder or a GGUF file. */
export async function openModelFiles(model: string): Promise<ModelFiles> {
  const { has, read } = await isGguf(model)
    ? (await import("./gguf/open.ts")).ggufFiles(model)
    : filesOf(model);
  const json = async (name: string) =>
    await has(name) ? parseJsonObject(await read(name), `${model}/${name}`) : {};
  return { has, read, json };
}

function filesOf(folder: string): Omit<ModelFiles, "json"> {
  return {
    has: async (name) => await statIfExists(`${folder}/${name}`) !== undefined,
    read: (name, maxBytes) => readRegularFile(`${folder}/${name}`, maxBytes),
  };
}

/** Returns whether a model has a tokenizer. */
export async function hasTokenizer(model: string): Promise<boolean> {
  const files = await openModelFiles(model);
  return await files.has("tokenizer.json") || await files.has("vocab.json");
}
