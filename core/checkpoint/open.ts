/**
 * Opens a checkpoint folder: checks everything that can be checked without reading weights.
 *
 * A checkpoint is the config and, for every parameter it calls for, the place of its bytes. Element
 * types come from the tensors, not from `torch_dtype`, which is often wrong.
 */
import { DataError } from "../base/errors.ts";
import type { ModelConfig } from "../model/config.ts";
import {
  EMBEDDING,
  HEAD,
  linearSpecs,
  type ParameterSpec,
  parameterSpecs,
} from "../model/parameters.ts";
import { parseBackboneHash, parseConfig } from "./config.ts";
import { type JsonObject, readJsonObject, statIfExists } from "../base/files.ts";
import { weightType } from "../base/dtype.ts";
import {
  type FileTensor,
  formatOf,
  type QuantizedTensor,
  type StoredWeight,
} from "../quant/stored.ts";
import { findEndTokens } from "./end_tokens.ts";
import { isPeft, readPeft } from "./peft.ts";
import { hasOwnHead } from "./tied_head.ts";
import { filesOf, isGguf, withJson } from "./model_files.ts";
import { ADAPTER_FILE, CONFIG_FILE, type ModelFiles, PEFT_CONFIG } from "../base/companions.ts";
import {
  findTensors,
  type FoundTensor,
  ggufHint,
  listSome,
  readTensorFile,
} from "./weight_files.ts";
import {
  findMatrices,
  matricesIn,
  type MatrixSpec,
  parseQuantization,
  type QuantizedMatrices,
  requireFullPrecision,
} from "./quantization.ts";

export { ADAPTER_FILE, CONFIG_FILE, INDEX_FILE, WEIGHTS_FILE } from "../base/companions.ts";

/** Place of one parameter's bytes. */
export interface StoredTensor extends StoredWeight {
  readonly name: string;
  /** Symbolic links resolved, as in a hub cache, so that the file can be mapped or compared. */
  readonly path: string;
  /** Bytes of the elements, which `encoding` may store in fewer. */
  readonly byteLength: number;
}

/** An opened folder or GGUF file. */
export interface Checkpoint {
  /** The folder, or the path of the GGUF file. */
  readonly directory: string;
  /** The files beside the weights. */
  readonly files: ModelFiles;
  readonly config: ModelConfig;
  /** `config.json` as read; that of the backbone when an adapter is in use. */
  readonly configJson: JsonObject;
  /** Exactly the tensors of `parameterSpecs(config)`, in that order; less those with codes alone. */
  readonly tensors: ReadonlyMap<string, StoredTensor>;
  /** Format of matrices in 8 or 4 bits; undefined for a checkpoint in full precision. */
  readonly quantization?: QuantizedMatrices;
  /** Tensors in the files that the model has no use for. */
  readonly extraTensors: readonly string[];
  /** True if `config.json` ties the output matrix to the embedding table, and the file has one of its own. */
  readonly isUntied: boolean;
  /** The adapter in use, and the hash of the backbone it was made for where it records one. */
  readonly adapter?: { readonly directory: string; readonly backboneSha256: string | undefined };
}

/** Options of opening a folder. */
export interface OpenOptions {
  /** Folder with introduced tensors to lay over the backbone. */
  readonly adapter?: string | undefined;
  /** True if weights may be in 8 or 4 bits, which only inference on some devices can use. */
  readonly quantized?: boolean;
  /** Purpose, for the message when weights are quantized; a command in backticks. */
  readonly purpose?: string;
}

/**
 * Opens a checkpoint folder or a GGUF file, with the introduced tensors of an adapter folder if one is given.
 * @throws {DataError} when the folder is damaged, or quantized and that is not allowed for
 */
export async function openCheckpoint(
  directory: string,
  options: OpenOptions = {},
): Promise<Checkpoint> {
  const gguf = await isGguf(directory)
    ? (await import("./gguf/open.ts")).openGguf(directory)
    : undefined;
  if (!gguf) await requireFolder(directory);
  const configPath = gguf ? directory : `${directory}/${CONFIG_FILE}`;
  const configJson = gguf?.configJson ?? await readJsonObject(configPath);
  const parsed = parseConfig(configJson, configPath);
  const scheme = parseQuantization(configJson, configPath);
  if (scheme && !options.quantized) requireFullPrecision(directory, scheme, options.purpose);
  const found = gguf?.found ?? await findTensors(directory);
  const isUntied = parsed.tieWordEmbeddings && await hasOwnHead(found);
  const stated = isUntied ? { ...parsed, tieWordEmbeddings: false } : parsed;
  const specs = parameterSpecs(stated);
  refuseContradictions(directory, stated, specs, found);
  const quantization = scheme &&
    findMatrices(directory, matricesIn(stated, scheme.format), scheme, found);
  const isStored = ({ name }: ParameterSpec) =>
    name === EMBEDDING || !quantization?.matrices.has(name);
  const tensors = matchTensors(directory, specs.filter(isStored), found);
  const files = gguf ? withJson(gguf.files) : filesOf(directory);
  const config: ModelConfig = {
    ...stated,
    dtype: tensors.get(EMBEDDING)!.dtype,
    eosTokenIds: await findEndTokens(files, stated.eosTokenIds),
  };
  const extraTensors = [...found.keys()].filter((name) =>
    !tensors.has(name) && !quantization?.names.has(name)
  );
  const checkpoint: Checkpoint = {
    directory,
    files,
    config,
    configJson,
    tensors,
    extraTensors,
    isUntied,
    ...(quantization ? { quantization } : {}),
  };
  return options.adapter === undefined ? checkpoint : addAdapter(checkpoint, options.adapter);
}

/** Tensors of a model for text and images that its text model has no use for. */
const OTHER_PARTS = /^(model\.visual|mtp)\./;

/** Says what of a checkpoint is not read, and where its tensors contradict `config.json`. */
export function tellReading(
  { extraTensors, isUntied, directory }: Checkpoint,
  tell: { note(text: string): void; warn(text: string): void },
): void {
  const count = extraTensors.filter((name) => OTHER_PARTS.test(name)).length;
  if (count > 0) {
    tell.note(
      `the text model is read; ${count} tensors for images and multi-token prediction are not`,
    );
  }
  if (!isUntied) return;
  tell.warn(
    `"${directory}" has a ${HEAD} that differs from ${EMBEDDING}, though config.json ties them: both are used`,
  );
}

async function requireFolder(directory: string): Promise<void> {
  const info = await statIfExists(directory);
  if (!info) {
    throw new DataError(`no such folder: "${directory}"`, {
      hints: ["check the path; a model of the hub is named OWNER/NAME"],
    });
  }
  if (!info.isDirectory) {
    throw new DataError(`"${directory}" is a file, not a model folder`, {
      hints: ["pass the folder that holds the file; a GGUF file is named NAME.gguf"],
    });
  }
  if (await statIfExists(`${directory}/${CONFIG_FILE}`)) return;
  if (await isPeft(directory)) {
    throw new DataError(
      `"${directory}" is a PEFT adapter, whose ${PEFT_CONFIG} names no base model`,
      {
        hints: [
          `pass both: --model BACKBONE --adapter ${directory}`,
          "`convert --merge` makes one folder of them",
        ],
      },
    );
  }
  const folderHint = "pass the folder that holds config.json and model.safetensors";
  throw new DataError(
    `"${directory}" is not a Hugging Face model folder: it has no ${CONFIG_FILE}`,
    { hints: [await ggufHint(directory) ?? folderHint] },
  );
}

/** Names that a model of another config would use; an unknown name outside this list is harmless. */
const PARAMETER_NAME =
  /^model\.(aggregate_layer\.([02]\.)?(weight|bias)|layers\.\d+\.(self_attn\.([qkvo]_proj\.(weight|bias|lora_[ab]|stream_bias)|[qk]_norm\.weight|prefix_[kv])|linear_attn\.prefix_(conv|state)|mlp\.(gate|up|down)_proj\.(weight|bias|lora_[ab]|stream_bias)|(input|post_attention)_layernorm\.weight))$/;

/** A parameter in the file that the config leaves no room for means that the config is wrong. */
function refuseContradictions(
  directory: string,
  config: ModelConfig,
  specs: readonly ParameterSpec[],
  found: ReadonlyMap<string, FoundTensor>,
): void {
  const expected = new Set(specs.map((spec) => spec.name));
  const surplus = [...found.keys()].filter((name) =>
    PARAMETER_NAME.test(name) && !expected.has(name)
  );
  if (surplus.length > 0) {
    const { family, numHiddenLayers: layers, streams } = config;
    throw new DataError(
      `the weights in "${directory}" do not fit its config.json: a ${family} model with ${layers} ` +
        `layers and parscale_n ${streams} has no ${listSome(surplus)}`,
      { hints: ["check model_type, num_hidden_layers and parscale_n in config.json"] },
    );
  }
  const hasHead = found.has(HEAD) || found.has("lm_head.codes");
  if (!config.tieWordEmbeddings && !hasHead && found.size > 0) {
    throw new DataError(
      `"${directory}" has no tensor lm_head.weight, and tie_word_embeddings is false`,
      {
        hints: [
          "set tie_word_embeddings to true in config.json if the tables are shared",
          "or save the model by AutoModelForCausalLM of transformers; AutoModel leaves the head out",
        ],
      },
    );
  }
}

/** Picks the tensors of `specs`, in that order, checking shape and type of each. */
function matchTensors(
  directory: string,
  specs: readonly ParameterSpec[],
  found: ReadonlyMap<string, FoundTensor>,
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
    const { name, shape, offset, byteLength, path, encoding, dtype: stored } = found.get(
      spec.name,
    )!;
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
        {
          hints: [
            "take the BF16 checkpoint, such as Qwen3-0.6B for Qwen3-0.6B-FP8, or a GGUF file",
          ],
        },
      );
    }
    const place = { path, offset, byteLength, ...(encoding ? { encoding } : {}) };
    tensors.set(name, { name, dtype, shape, ...place });
  }
  return tensors;
}

/**
 * All weights of a checkpoint by name, as devices take them; rows of a table in codes of a GGUF file are
 * read as they are, which is exact. With `keepsCodes` matrices of a GGUF file keep their codes, if there is
 * a format for those of most; else all are f32.
 */
export function weightsOf(
  { config, tensors, quantization }: Checkpoint,
  { keepsCodes = false } = {},
): ReadonlyMap<string, FileTensor | QuantizedTensor> {
  const embedding = tensors.get(EMBEDDING)!, table = formatOf(embedding);
  const inFull = new Map<string, FileTensor>(tensors);
  if (table && !table.offsets) inFull.set(EMBEDDING, { ...embedding, table });
  if (!quantization) return keepsCodes ? withCodes(config, inFull) : inFull;
  const weights = new Map<string, FileTensor | QuantizedTensor>(inFull);
  for (const [name, matrix] of quantization.matrices) {
    const stored = inFull.get(name);
    weights.set(name, { ...matrix, dtype: stored?.dtype ?? "f32", ...(stored ? { stored } : {}) });
  }
  return weights;
}

/** Matrices of a GGUF file whose codes are kept, with the table of which rows are read; none where all are f32. */
export function codedIn(checkpoint: Checkpoint): MatrixSpec[] {
  const weights = [...weightsOf(checkpoint, { keepsCodes: true })];
  if (!weights.some(([, { format }]) => format)) return [];
  return weights.flatMap(([name, weight]) => {
    const { shape, format = "codes" in weight ? undefined : weight.table } = weight;
    return format ? [{ name, shape, format }] : [];
  });
}

function withCodes(
  config: ModelConfig,
  tensors: ReadonlyMap<string, FileTensor>,
): ReadonlyMap<string, FileTensor> {
  const matrices = linearSpecs(config);
  const coded = matrices.flatMap(({ name }) => {
    const tensor = tensors.get(name)!, format = formatOf(tensor);
    return format ? [[name, { ...tensor, format }] as const] : [];
  });
  // Products with codes round activations to 8 bits, which a file of other types is spared.
  return coded.length * 2 < matrices.length ? tensors : new Map([...tensors, ...coded]);
}

/** Streams and tensors of an adapter folder of our own. */
async function readOwn(base: Checkpoint, directory: string) {
  if (!await isGguf(directory)) await requireFolder(directory);
  if (!await statIfExists(`${directory}/${ADAPTER_FILE}`)) {
    throw new DataError(`"${directory}" is not an adapter folder: it has no ${ADAPTER_FILE}`, {
      hints: [
        "`convert --introduced-only` and `train --train-params introduced` write such folders",
      ],
    });
  }
  const configPath = `${directory}/${CONFIG_FILE}`;
  const json = await readJsonObject(configPath);
  const adapter = parseConfig(json, configPath);
  const backboneSha256 = parseBackboneHash(json, configPath);
  const sizes = ["family", "hiddenSize", "numHiddenLayers", "numKeyValueHeads", "headDim"] as const;
  for (const size of sizes) {
    const found = adapter[size], expected = base.config[size];
    if (found === expected) continue;
    const key = size.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
    throw new DataError(
      `adapter "${directory}" does not fit "${base.directory}": ${key} is ${found}, expected ${expected}`,
      { hints: ["an adapter fits only the backbone it was made for"] },
    );
  }
  const { streams, prefix, prefixTokens, loraRank, lora, bitfit, smoothing, aggregator } = adapter;
  const own = { streams, prefix, prefixTokens, loraRank, lora, bitfit, smoothing, aggregator };
  const found = await readTensorFile(`${directory}/${ADAPTER_FILE}`);
  return { own, found, backboneSha256 };
}

/** Puts the introduced tensors of an adapter folder over the backbone of an opened checkpoint. */
async function addAdapter(base: Checkpoint, directory: string): Promise<Checkpoint> {
  const { own, found, backboneSha256 } = await isPeft(directory)
    ? await readPeft(directory, base.config)
    : await readOwn(base, directory);
  const config = { ...base.config, ...own };
  const specs = parameterSpecs(config);
  const introduced = matchTensors(directory, specs.filter((spec) => spec.introduced), found);
  const tensors = new Map(specs.flatMap(({ name }) => {
    const tensor = introduced.get(name) ?? base.tensors.get(name);
    return tensor ? [[name, tensor]] : [];
  }));
  const checkpoint = { ...base, config, tensors, adapter: { directory, backboneSha256 } };
  if (!base.quantization) return checkpoint;
  const matrices = new Map(
    [...base.quantization.matrices].filter(([name]) => !introduced.has(name)),
  );
  return { ...checkpoint, quantization: { ...base.quantization, matrices } };
}
