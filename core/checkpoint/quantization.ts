/**
 * Checkpoints in 8 or 4 bits: what `config.json` says about them, and where codes and scales lie.
 *
 * A matrix `<name>.weight` [N, K] is stored as `<name>.codes`, U8 [N, blocks, bytes], and `<name>.scales`,
 * F32 [N, blocks], as `quantize` makes them. Embedding tables and vectors stay in full precision; a tied
 * table has codes besides, for its use as the output matrix.
 */
import { DataError } from "../base/errors.ts";
import { isObject, type JsonObject, show } from "../base/files.ts";
import { packing, type QuantizedFormat } from "../quant/codes.ts";
import type { FileRange } from "../quant/stored.ts";
import type { ModelConfig } from "../model/config.ts";
import { linearSpecs } from "../model/parameters.ts";
import { Fields } from "./fields.ts";
import { type FoundTensor, listSome } from "./weight_files.ts";

/** Key in `config.json`; transformers refuses the method by name. */
export const QUANTIZATION_KEY = "quantization_config";

const METHOD = "parscale";

/** Changes whenever files of before could no longer be read as they are. */
const VERSION = 1;

/** Entry of `config.json` about quantized weights. */
export interface QuantizationScheme {
  readonly format: QuantizedFormat;
  /** Backbone hash of the checkpoint that was quantized, by which adapters know it. */
  readonly sourceSha256: string;
  /** SHA-256 over the bytes of all tensors in file order. */
  readonly weightsSha256: string;
}

/** Place of the codes, scales and offsets of one matrix. */
export interface QuantizedMatrix extends MatrixSpec {
  readonly codes: FileRange;
  readonly scales: FileRange;
  readonly offsets?: FileRange;
}

/** A matrix and its format. */
export interface MatrixSpec {
  readonly name: string;
  readonly shape: readonly number[];
  readonly format: QuantizedFormat;
}

/** The quantized part of an opened folder; matrices kept from a GGUF file have formats of their own. */
export interface QuantizedMatrices extends QuantizationScheme {
  /** By the name of the parameter. */
  readonly matrices: ReadonlyMap<string, QuantizedMatrix>;
  /** Names of all tensors with codes or scales. */
  readonly names: ReadonlySet<string>;
}

/** Returns whether an entry of `config.json` tells of weights quantized in another way than ours. */
export function isForeignQuantization(value: unknown): boolean {
  if (value === undefined || value === null) return false;
  return !isObject(value) || value.quant_method !== METHOD;
}

/** The scheme in a parsed `config.json`; undefined where weights have full precision. */
export function parseQuantization(json: JsonObject, path: string): QuantizationScheme | undefined {
  const value = json[QUANTIZATION_KEY];
  if (!isObject(value) || value.quant_method !== METHOD) return undefined;
  const fields = new Fields(value, path);
  if (value.version !== VERSION) {
    throw new DataError(
      `"${path}" has quantized weights of version ${show(value.version)}, expected ${VERSION}`,
      { hints: ["write them again with `convert --quantize`"] },
    );
  }
  if (value.bits !== 4 && value.bits !== 8) throw fields.error("bits", "4 or 8");
  const block = fields.integer("block_size", 0, 16, 256);
  if (!Number.isInteger(Math.log2(block))) throw fields.error("block_size", "a power of two");
  return {
    format: { kind: value.bits === 8 ? "q8" : "q4", block },
    sourceSha256: fields.sha256("source_sha256"),
    weightsSha256: fields.sha256("weights_sha256"),
  };
}

/** Returns the entry of `config.json` about weights of this scheme. */
export function quantizationJson(scheme: QuantizationScheme): JsonObject {
  const { format: { kind, block }, sourceSha256, weightsSha256 } = scheme;
  return {
    quant_method: METHOD,
    version: VERSION,
    bits: kind === "q8" ? 8 : 4,
    block_size: block,
    source_sha256: sourceSha256,
    weights_sha256: weightsSha256,
  };
}

/** Throws that something needs weights with all their bits. */
export function requireFullPrecision(
  directory: string,
  { format }: QuantizationScheme,
  purpose = "this",
): never {
  throw new DataError(`${purpose} needs full-precision weights: "${directory}" is ${format.kind}`, {
    hints: ["use the checkpoint that it was quantized from"],
  });
}

/** A tensor of a matrix. */
export interface MatrixPart {
  readonly kind: "codes" | "scales" | "offsets";
  readonly name: string;
  readonly dtype: "u8" | "f32";
  readonly shape: readonly number[];
  readonly byteLength: number;
}

/** The tensors of a matrix. */
export function partsOf({ name: parameter, shape, format }: MatrixSpec): MatrixPart[] {
  const { rows, blocks, rowBytes } = packing(shape, format);
  const part = (kind: MatrixPart["kind"], dtype: "u8" | "f32", ...block: number[]) => {
    const byteLength = kind === "codes" ? rows * rowBytes : 4 * rows * blocks;
    const name = parameter.replace(/(\.weight)?$/, `.${kind}`);
    return { kind, name, dtype, shape: [rows, blocks, ...block], byteLength };
  };
  const codes = part("codes", "u8", rowBytes / blocks), scales = part("scales", "f32");
  return [codes, scales, ...(format.offsets ? [part("offsets", "f32")] : [])];
}

/** Matrices of a model that are all of one format. */
export function matricesIn(config: ModelConfig, format: QuantizedFormat): MatrixSpec[] {
  return linearSpecs(config).map(({ name, shape }) => ({ name, shape, format }));
}

/** Picks codes and scales of matrices, checking shape and type of each. */
export function findMatrices(
  directory: string,
  specs: readonly MatrixSpec[],
  scheme: QuantizationScheme,
  found: ReadonlyMap<string, FoundTensor>,
): QuantizedMatrices {
  const names = specs.flatMap((spec) => partsOf(spec).map(({ name }) => name));
  const missing = names.filter((name) => !found.has(name));
  if (missing.length > 0) {
    const count = `${missing.length} of ${names.length} tensors of quantized weights`;
    throw new DataError(`"${directory}" lacks ${count}: ${listSome(missing)}`, {
      hints: ["check that config.json and the weights belong to the same model"],
    });
  }
  const rangeOf = ({ name, shape, dtype: type }: MatrixPart): FileRange => {
    const tensor = found.get(name)!, dtype = type.toUpperCase();
    if (tensor.dtype !== dtype || tensor.shape.join() !== shape.join()) {
      throw new DataError(
        `tensor ${name} in "${directory}" is ${tensor.dtype} [${tensor.shape}], expected ${dtype} [${shape}] from config.json`,
        { hints: ["check that config.json and the weights belong to the same model"] },
      );
    }
    const { path, offset, byteLength } = tensor;
    return { path, offset, byteLength };
  };
  const matrices = new Map(specs.map((spec) => {
    const ranges = partsOf(spec).map((part) => [part.kind, rangeOf(part)] as const);
    return [spec.name, { ...spec, ...Object.fromEntries(ranges) } as QuantizedMatrix];
  }));
  return { ...scheme, matrices, names: new Set(names) };
}
