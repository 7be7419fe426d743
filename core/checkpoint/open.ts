/**
 * Opens a checkpoint folder: checks everything that can be checked without reading weights.
 *
 * Takes a folder as Hugging Face lays it out, one file or sharded, and perhaps an adapter folder
 * with the introduced tensors of a ParScale model; returns the config and, for every parameter it
 * calls for, where its bytes lie. Element types come from the tensors, not from `torch_dtype`,
 * which is often wrong; end tokens come from `generation_config.json` first, as in transformers.
 */
import { DataError } from "../base/errors.ts";
import type { ModelConfig, WeightType } from "../model/config.ts";
import { type ParameterSpec, parameterSpecs } from "../model/parameters.ts";
import { parseBackboneHash, parseConfig, parseTokenIds } from "./config.ts";
import {
  isObject,
  type JsonObject,
  readError,
  readJsonObject,
  show,
  statIfExists,
} from "../base/files.ts";
import { type HeaderEntry, readHeader } from "./safetensors.ts";
import { weightType } from "../base/dtype.ts";

/** File names that the format fixes. */
export const CONFIG_FILE = "config.json";
export const WEIGHTS_FILE = "model.safetensors";
export const INDEX_FILE = "model.safetensors.index.json";
export const ADAPTER_FILE = "introduced.safetensors";

/** Where the bytes of one parameter lie. */
export interface StoredTensor {
  readonly name: string;
  readonly dtype: WeightType;
  readonly shape: readonly number[];
  /** Symbolic links resolved, as in a hub cache, so that the file can be mapped or compared. */
  readonly path: string;
  /** Position of the first byte in the file. */
  readonly offset: number;
  readonly byteLength: number;
}

/** An opened folder. */
export interface Checkpoint {
  readonly directory: string;
  readonly config: ModelConfig;
  /** `config.json` as read; that of the backbone when an adapter is in use. */
  readonly configJson: JsonObject;
  /** Exactly the tensors of `parameterSpecs(config)`, in that order. */
  readonly tensors: ReadonlyMap<string, StoredTensor>;
  /** Tensors in the files that the model has no use for. */
  readonly extraTensors: readonly string[];
  /** The adapter in use, and the hash of the backbone it was made for where it records one. */
  readonly adapter?: { readonly directory: string; readonly backboneSha256: string | undefined };
}

/** A header entry and the file it is from. */
type Found = HeaderEntry & { readonly path: string };

/** Opens a checkpoint folder, with the introduced tensors of an adapter folder if one is given. */
export async function openCheckpoint(
  directory: string,
  options: { adapter?: string } = {},
): Promise<Checkpoint> {
  await requireFolder(directory);
  const configPath = `${directory}/${CONFIG_FILE}`;
  const configJson = await readJsonObject(configPath);
  const stated = parseConfig(configJson, configPath);
  const found = await findTensors(directory);
  const specs = parameterSpecs(stated);
  refuseContradictions(directory, stated, specs, found);
  const tensors = matchTensors(directory, specs, found);
  const config: ModelConfig = {
    ...stated,
    dtype: tensors.get("model.embed_tokens.weight")!.dtype,
    eosTokenIds: await readEndTokens(directory) ?? stated.eosTokenIds,
  };
  const extraTensors = [...found.keys()].filter((name) => !tensors.has(name));
  const checkpoint = { directory, config, configJson, tensors, extraTensors };
  return options.adapter === undefined ? checkpoint : addAdapter(checkpoint, options.adapter);
}

async function requireFolder(directory: string): Promise<void> {
  const info = await statIfExists(directory);
  if (info?.isDirectory) {
    if (await statIfExists(`${directory}/${CONFIG_FILE}`)) return;
    throw new DataError(
      `"${directory}" is not a Hugging Face model folder: it has no ${CONFIG_FILE}`,
      { hints: ["pass the folder that holds config.json and model.safetensors"] },
    );
  }
  throw new DataError(
    info ? `"${directory}" is a file, not a model folder` : `no such folder: "${directory}"`,
    {
      hints: [
        info
          ? "pass the folder that holds the file"
          : "check the path; a model of the hub is named OWNER/NAME",
      ],
    },
  );
}

/** All tensors in the folder's weight files by name. A single file wins over an index. */
async function findTensors(directory: string): Promise<Map<string, Found>> {
  if (await statIfExists(`${directory}/${WEIGHTS_FILE}`)) {
    return readFile(`${directory}/${WEIGHTS_FILE}`);
  }
  if (await statIfExists(`${directory}/${INDEX_FILE}`)) return readShards(directory);
  const hints = await statIfExists(`${directory}/${ADAPTER_FILE}`)
    ? ["this is an adapter folder: pass it with `--adapter`, and its backbone with `--model`"]
    : await statIfExists(`${directory}/pytorch_model.bin`)
    ? ["save the model as safetensors first; pickled weights are not read"]
    : ["copy or download the weights into the folder"];
  throw new DataError(
    `"${directory}" has no weights: neither ${WEIGHTS_FILE} nor ${INDEX_FILE}`,
    { hints },
  );
}

async function readFile(path: string): Promise<Map<string, Found>> {
  let realPath: string;
  try {
    realPath = await Deno.realPath(path);
  } catch (error) {
    throw readError(path, error);
  }
  const { entries } = await readHeader(path);
  return new Map(entries.map((entry) => [entry.name, { ...entry, path: realPath }]));
}

async function readShards(directory: string): Promise<Map<string, Found>> {
  const indexPath = `${directory}/${INDEX_FILE}`;
  const { weight_map: weightMap } = await readJsonObject(indexPath);
  if (!isObject(weightMap)) {
    throw new DataError(
      `weight_map in "${indexPath}" must map tensors to files, not be ${show(weightMap)}`,
    );
  }
  for (const [tensor, file] of Object.entries(weightMap)) {
    // A shard lies beside its index; anything else would read files outside the folder.
    if (typeof file !== "string" || !/^[^/\\\0]+\.safetensors$/.test(file)) {
      throw new DataError(
        `"${indexPath}" maps tensor ${show(tensor)} to ${
          show(file)
        }, which is not the name of a .safetensors file`,
      );
    }
  }
  const files = [...new Set(Object.values(weightMap) as string[])].sort();
  const missing: string[] = [];
  for (const file of files) {
    if (!await statIfExists(`${directory}/${file}`)) missing.push(file);
  }
  if (missing.length > 0) {
    throw new DataError(
      `"${directory}" is incomplete: ${missing.length} of ${files.length} shards listed in ${INDEX_FILE} ${
        missing.length === 1 ? "is" : "are"
      } missing`,
      { hints: [`copy ${listSome(missing)} into the folder`] },
    );
  }
  const shards = new Map<string, Map<string, Found>>();
  for (const file of files) shards.set(file, await readFile(`${directory}/${file}`));

  const found = new Map<string, Found>();
  for (const shard of shards.values()) for (const [name, entry] of shard) found.set(name, entry);
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

/** Names that a model of another config would use; an unknown name outside this list is harmless. */
const PARAMETER_NAME =
  /^model\.(aggregate_layer\.([02]\.)?(weight|bias)|layers\.\d+\.(self_attn\.([qkvo]_proj\.(weight|bias|lora_[ab]|stream_bias)|[qk]_norm\.weight|prefix_[kv])|mlp\.(gate|up|down)_proj\.(weight|bias|lora_[ab]|stream_bias)|(input|post_attention)_layernorm\.weight))$/;

/** A parameter in the file that the config leaves no room for means that the config is wrong. */
function refuseContradictions(
  directory: string,
  config: ModelConfig,
  specs: readonly ParameterSpec[],
  found: ReadonlyMap<string, Found>,
): void {
  const expected = new Set(specs.map((spec) => spec.name));
  const surplus = [...found.keys()].filter((name) =>
    PARAMETER_NAME.test(name) && !expected.has(name)
  );
  if (surplus.length > 0) {
    throw new DataError(
      `the weights in "${directory}" do not fit its config.json: a ${config.family} model with ${config.numHiddenLayers} layers and parscale_n ${config.streams} has no ${
        listSome(surplus)
      }`,
      { hints: ["check model_type, num_hidden_layers and parscale_n in config.json"] },
    );
  }
  if (!config.tieWordEmbeddings && !found.has("lm_head.weight") && found.size > 0) {
    throw new DataError(
      `"${directory}" has no tensor lm_head.weight, and tie_word_embeddings is false`,
      { hints: ["set tie_word_embeddings to true in config.json if the tables are shared"] },
    );
  }
}

/** Picks the tensors of `specs`, in that order, checking shape and type of each. */
function matchTensors(
  directory: string,
  specs: readonly ParameterSpec[],
  found: ReadonlyMap<string, Found>,
): Map<string, StoredTensor> {
  const missing = specs.filter((spec) => !found.has(spec.name)).map((spec) => spec.name);
  if (missing.length > 0) {
    throw new DataError(
      `"${directory}" lacks ${missing.length} of ${specs.length} tensors: ${listSome(missing)}`,
      { hints: ["check that config.json and the weights belong to the same model"] },
    );
  }
  const tensors = new Map<string, StoredTensor>();
  for (const spec of specs) {
    const { name, shape, offset, byteLength, path, dtype: stored } = found.get(spec.name)!;
    if (shape.length !== spec.shape.length || shape.some((size, i) => size !== spec.shape[i])) {
      throw new DataError(
        `tensor ${name} in "${directory}" has shape [${shape}], expected [${spec.shape}] from config.json`,
        { hints: ["check that config.json and the weights belong to the same model"] },
      );
    }
    const dtype = weightType(stored);
    if (dtype === undefined) {
      throw new DataError(
        `tensor ${name} in "${directory}" has dtype ${stored}, expected F32, BF16 or F16`,
      );
    }
    tensors.set(name, { name, dtype, shape, path, offset, byteLength });
  }
  return tensors;
}

/** The first few names and how many more there are. */
function listSome(names: readonly string[]): string {
  const shown = names.slice(0, 3).join(", ");
  return names.length > 3 ? `${shown} and ${names.length - 3} more` : shown;
}

async function readEndTokens(directory: string): Promise<number[] | undefined> {
  const path = `${directory}/generation_config.json`;
  if (!await statIfExists(path)) return undefined;
  const { eos_token_id: ids } = await readJsonObject(path);
  return ids === undefined || ids === null ? undefined : parseTokenIds(ids, "eos_token_id", path);
}

/** Puts the introduced tensors of an adapter folder over the backbone of an opened checkpoint. */
async function addAdapter(base: Checkpoint, directory: string): Promise<Checkpoint> {
  await requireFolder(directory);
  if (!await statIfExists(`${directory}/${ADAPTER_FILE}`)) {
    throw new DataError(
      `"${directory}" is not an adapter folder: it has no ${ADAPTER_FILE}`,
      {
        hints: [
          "`convert --introduced-only` and `train --train-params introduced` write such folders",
        ],
      },
    );
  }
  const configPath = `${directory}/${CONFIG_FILE}`;
  const json = await readJsonObject(configPath);
  const adapter = parseConfig(json, configPath);
  const backboneSha256 = parseBackboneHash(json, configPath);
  const sizes = ["family", "hiddenSize", "numHiddenLayers", "numKeyValueHeads", "headDim"] as const;
  for (const size of sizes) {
    if (adapter[size] !== base.config[size]) {
      const key = size.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
      throw new DataError(
        `adapter "${directory}" does not fit "${base.directory}": ${key} is ${
          adapter[size]
        }, expected ${base.config[size]}`,
        { hints: ["an adapter fits only the backbone it was made for"] },
      );
    }
  }
  const { streams, prefix, prefixTokens, loraRank, bitfit, smoothing, aggregator } = adapter;
  const own = { streams, prefix, prefixTokens, loraRank, bitfit, smoothing, aggregator };
  const config = { ...base.config, ...own };
  const specs = parameterSpecs(config);
  const found = await readFile(`${directory}/${ADAPTER_FILE}`);
  const introduced = matchTensors(directory, specs.filter((spec) => spec.introduced), found);
  const tensors = new Map(
    specs.map(({ name }) => [name, introduced.get(name) ?? base.tensors.get(name)!]),
  );
  return { ...base, config, tensors, adapter: { directory, backboneSha256 } };
}
