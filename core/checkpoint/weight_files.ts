/**
 * The tensors in the weight files of a folder: one file, or shards with an index. Only headers are read.
 */
import { ADAPTER_FILE, INDEX_FILE, isGgufName, WEIGHTS_FILE } from "../base/companions.ts";
import { DataError } from "../base/errors.ts";
import { isObject, readJsonObject, show, statIfExists } from "../base/files.ts";
import type { Encoding } from "../quant/stored.ts";
import { type HeaderEntry, readHeader } from "./safetensors.ts";

/** A header entry and the file it is from; an encoded tensor has the bytes of its elements. */
export type FoundTensor = HeaderEntry & { readonly path: string; readonly encoding?: Encoding };

/** Prefix of the text model's tensors in a model that is for images too. */
const TEXT_MODEL = /^model\.language_model\./;

/**
 * All tensors in the folder's weight files by name. Those of a model without its head, as `AutoModel` of
 * transformers saves it, get the prefix that they have under a head.
 */
export async function findTensors(directory: string): Promise<Map<string, FoundTensor>> {
  const found = await readTensors(directory);
  const isBare = found.has("embed_tokens.weight");
  const renamed = found.values().map((tensor): [string, FoundTensor] => {
    const name = (isBare ? `model.${tensor.name}` : tensor.name).replace(TEXT_MODEL, "model.");
    return [name, { ...tensor, name }];
  });
  return new Map(renamed);
}

/** A single file wins over an index. */
async function readTensors(directory: string): Promise<Map<string, FoundTensor>> {
  if (await statIfExists(`${directory}/${WEIGHTS_FILE}`)) {
    return readTensorFile(`${directory}/${WEIGHTS_FILE}`);
  }
  if (await statIfExists(`${directory}/${INDEX_FILE}`)) return readShards(directory);
  const hints = await statIfExists(`${directory}/${ADAPTER_FILE}`)
    ? ["this is an adapter folder: pass it with `--adapter`, and its backbone with `--model`"]
    : await statIfExists(`${directory}/pytorch_model.bin`)
    ? ["save the model as safetensors first; pickled weights are not read"]
    : [await ggufHint(directory) ?? "copy or download the weights into the folder"];
  throw new DataError(
    `"${directory}" has no weights: neither ${WEIGHTS_FILE} nor ${INDEX_FILE}`,
    { hints },
  );
}

/** A hint that names the GGUF files of a folder, without the later ones of a split model, if it has any. */
export async function ggufHint(directory: string): Promise<string | undefined> {
  const entries = Array.fromAsync(Deno.readDir(directory), ({ name }) => name);
  const names = await entries.catch(() => []); // a folder that cannot be listed has another error
  const paths = names
    .filter((name) => isGgufName(name) && !/-(?!00001-)\d{5}-of-\d{5}\.gguf$/i.test(name))
    .sort().map((name) => `"${directory}/${name}"`);
  return paths.length > 0 ? `pass a GGUF file of the folder: ${listSome(paths)}` : undefined;
}

export async function readTensorFile(path: string): Promise<Map<string, FoundTensor>> {
  const entries = await readHeader(path), realPath = await Deno.realPath(path);
  return new Map(entries.map((entry) => [entry.name, { ...entry, path: realPath }]));
}

async function readShards(directory: string): Promise<Map<string, FoundTensor>> {
  const indexPath = `${directory}/${INDEX_FILE}`;
  const { weight_map: weightMap } = await readJsonObject(indexPath);
  if (!isObject(weightMap)) {
    throw new DataError(
      `weight_map in "${indexPath}" must map tensors to files, not be ${show(weightMap)}`,
    );
  }
  for (const [tensor, file] of Object.entries(weightMap)) {
    // A shard lies beside its index; anything else would read files outside the folder.
    if (typeof file === "string" && /^[^/\\\0]+\.safetensors$/.test(file)) continue;
    const entry = `tensor ${show(tensor)} to ${show(file)}`;
    throw new DataError(
      `"${indexPath}" maps ${entry}, which is not the name of a .safetensors file`,
    );
  }
  const files = [...new Set(Object.values(weightMap) as string[])].sort();
  const there = await Array.fromAsync(files, (file) => statIfExists(`${directory}/${file}`));
  const missing = files.filter((_, i) => !there[i]);
  if (missing.length > 0) {
    const count = `${missing.length} of ${files.length} shards listed in ${INDEX_FILE}`;
    const verb = missing.length === 1 ? "is" : "are";
    throw new DataError(`"${directory}" is incomplete: ${count} ${verb} missing`, {
      hints: [`copy ${listSome(missing)} into the folder`],
    });
  }
  const shards = new Map<string, Map<string, FoundTensor>>();
  for (const file of files) shards.set(file, await readTensorFile(`${directory}/${file}`));

  const found = new Map([...shards.values()].flatMap((shard) => [...shard]));
  for (const [name, file] of Object.entries(weightMap)) {
    const entry = shards.get(file as string)!.get(name);
    if (entry === undefined) {
      throw new DataError(
        `"${directory}/${file}" has no tensor ${show(name)}, which ${INDEX_FILE} lists there`,
      );
    }
    found.set(name, entry);
  }
  return found;
}

/** The first few names and how many more there are. */
export function listSome(names: readonly string[]): string {
  const shown = names.slice(0, 3).join(", ");
  return names.length > 3 ? `${shown} and ${names.length - 3} more` : shown;
}
