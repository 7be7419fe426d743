/**
 * Writes a checkpoint in 8 or 4 bits, which opens by mapping its file.
 *
 * Codes and scales are those that `--quantize` makes of the same checkpoint at run time, so results are
 * equal bit for bit. Matrices are quantized a few rows at a time, beside the hash of the source.
 */
import { createHash, type Hash } from "node:crypto";
import { DataError } from "../base/errors.ts";
import { type JsonObject, openRegularFile, readExactlySync } from "../base/files.ts";
import { ELEMENT_BYTES, findNonFinite, fromF32, toF32 } from "../base/dtype.ts";
import type { QuantizedFormat } from "../base/quantize.ts";
import { quantizeRows, type ReadBytes, readsFrom } from "../base/stored.ts";
import { countParameters, elementCount, EMBEDDING, linearSpecs } from "../model/parameters.ts";
import { startBackboneHash } from "./backbone.ts";
import type { ConversionReport, ConversionRun } from "./convert.ts";
import { writeFolder } from "./folder.ts";
import { type Checkpoint, CONFIG_FILE, openCheckpoint, type StoredTensor } from "./open.ts";
import { CARD_FILE, modelCard } from "./model_card.ts";
import { checkTarget } from "./plan_conversion.ts";
import { partNames, partShapes, QUANTIZATION_KEY, quantizationJson } from "./quantization.ts";
import { readPart, requireFinite } from "./read.ts";
import {
  copyCompanions,
  DEFAULT_SHARD_BYTES,
  type OutputTensor,
  streamTensors,
  writeJson,
  writeText,
  writeWeights,
} from "./write.ts";

/** Options of quantizing a checkpoint. */
export interface QuantizationOptions {
  readonly model: string;
  readonly out: string;
  readonly format: QuantizedFormat;
  /** Bytes. */
  readonly maxShardSize?: number;
  readonly overwrite?: boolean;
}

/** A quantization that has been checked and only needs to be carried out. */
export interface QuantizationPlan {
  readonly options: QuantizationOptions;
  readonly source: Checkpoint;
  /** Tensors written, in file order. */
  readonly tensors: readonly OutputTensor[];
  readonly bytes: number;
}

/** Checks what is asked for; writes nothing and reads no weights. */
export async function planQuantization(options: QuantizationOptions): Promise<QuantizationPlan> {
  const source = await openCheckpoint(options.model, { purpose: "`convert`" });
  await checkTarget(options);
  const tensors = outputTensors(source, options.format);
  const bytes = tensors.reduce((sum, { byteLength }) => sum + byteLength, 0);
  return { options, source, tensors, bytes };
}

/** Carries out a plan. The new folder appears complete or not at all. */
export function quantizeCheckpoint(
  { options, source, tensors, bytes }: QuantizationPlan,
  run: ConversionRun = {},
): Promise<ConversionReport> {
  const { signal } = run;
  const replaces = options.overwrite ? "checkpoint" : undefined;
  return writeFolder(options.out, { replaces, signal }, async (folder) => {
    const companions = await copyCompanions(source.directory, folder);
    const { maxShardSize: maxShardBytes = DEFAULT_SHARD_BYTES, format } = options;
    const { files, sourceSha256 } = await writeQuantized(folder, source, format, tensors, {
      ...run,
      maxShardBytes,
      json: source.configJson,
    });
    const facts = { folder: options.out, config: source.config, source: options.model };
    const card = modelCard({ ...facts, backboneSha256: sourceSha256, quantization: format });
    await writeText(`${folder}/${CARD_FILE}`, card);
    if (run.verify) await checkQuantized(folder, signal);
    return {
      introducedParams: countParameters(source.config).introduced,
      backboneSha256: sourceSha256,
      tensors: tensors.length,
      bytes,
      files: [CONFIG_FILE, ...companions, ...files, CARD_FILE],
    };
  });
}

/** Writes weights, and a `config.json` of `json` with their scheme; hashes the source meanwhile. */
async function writeQuantized(
  folder: string,
  source: Checkpoint,
  format: QuantizedFormat,
  tensors: readonly OutputTensor[],
  run: Omit<ConversionRun, "verify"> & {
    readonly json: JsonObject;
    readonly maxShardBytes: number;
  },
): Promise<{ files: string[]; sourceSha256: string }> {
  const { json, maxShardBytes, signal } = run;
  await using sourceHash = startBackboneHash(source, signal);
  const bytes = tensors.reduce((sum, { byteLength }) => sum + byteLength, 0);
  const hash = createHash("sha256");
  let done = 0;
  const inspect = (_: OutputTensor, __: number, piece: Uint8Array) => {
    hash.update(piece);
    run.onProgress?.(done += piece.length, bytes);
  };
  const stream = { inspect, signal: sourceHash.signal, maxShardBytes };
  const files = await writeWeights(folder, tensors, stream);
  const sourceSha256 = await sourceHash.digest;
  const scheme = { format, sourceSha256, weightsSha256: hash.digest("hex") };
  await writeJson(`${folder}/${CONFIG_FILE}`, {
    ...json,
    [QUANTIZATION_KEY]: quantizationJson(scheme),
  });
  return { files, sourceSha256 };
}

/**
 * Reads all of a quantized folder.
 * @throws {DataError} when it is not what was written
 */
export async function checkQuantized(directory: string, signal?: AbortSignal): Promise<void> {
  const { tensors, quantization } = await openCheckpoint(directory, { quantized: true });
  const { matrices, weightsSha256 } = quantization!;
  const stored = (tensor: StoredTensor): OutputTensor => ({ ...tensor, source: tensor });
  const parts = [...matrices.values()].flatMap(({ name, codes, scales }) => [
    { name, dtype: "u8" as const, shape: [], byteLength: codes.byteLength, source: codes },
    { name, dtype: "u8" as const, shape: [], byteLength: scales.byteLength, source: scales },
  ]);
  const others = [...tensors.values()].filter(({ name }) => name !== EMBEDDING);
  const all = [...parts, ...[...others, tensors.get(EMBEDDING)!].map(stored)];
  const hash: Hash = createHash("sha256");
  await streamTensors(all, { inspect: (_, __, piece) => hash.update(piece), signal });
  const found = hash.digest("hex");
  if (found === weightsSha256) return;
  throw new DataError(
    `the weights in "${directory}" were changed: their SHA-256 is ${found}, expected ${weightsSha256}`,
    { hints: ["copy the folder again, or write it again with `convert --quantize`"] },
  );
}

/** Codes and scales of every matrix, then vectors in f32, then the embedding table as it is. */
function outputTensors(source: Checkpoint, format: QuantizedFormat): OutputTensor[] {
  const { config, tensors } = source;
  const matrices = linearSpecs(config);
  const known = new Set([EMBEDDING, ...matrices.map(({ name }) => name)]);
  const table = tensors.get(EMBEDDING)!;
  return [
    ...matrices.flatMap(({ name }) => matrixTensors(tensors.get(name)!, format)),
    ...[...tensors.values()].filter(({ name }) => !known.has(name)).map(asF32),
    { ...table, source: table },
  ];
}

/** Codes and scales of one matrix, made as they are read. */
export function matrixTensors(tensor: StoredTensor, format: QuantizedFormat): OutputTensor[] {
  const names = partNames(tensor.name);
  const shapes = partShapes(tensor.shape, format);
  const rows = new QuantizedRows(tensor, format);
  const bytes = (name: "codes" | "scales", size: number) => elementCount(shapes[name]) * size;
  return [
    {
      name: names.codes,
      dtype: "u8",
      shape: shapes.codes,
      byteLength: bytes("codes", 1),
      source: rows.codes,
    },
    {
      name: names.scales,
      dtype: "f32",
      shape: shapes.scales,
      byteLength: bytes("scales", 4),
      source: rows.scales,
    },
  ];
}

function asF32(tensor: StoredTensor): OutputTensor {
  let bytes: Uint8Array<ArrayBuffer> | undefined;
  const source = (start: number, length: number) => {
    bytes ??= fromF32(toF32(finitePart(tensor, 0, tensor.byteLength), tensor.dtype), "f32");
    return bytes.subarray(start, start + length);
  };
  return { ...tensor, dtype: "f32", byteLength: elementCount(tensor.shape) * 4, source };
}

/** Finite bytes of a tensor's elements. */
function finitePart(tensor: StoredTensor, start: number, length: number): Uint8Array<ArrayBuffer> {
  using file = openRegularFile(tensor.path);
  const bytes = readPart(tensor, file, start, length);
  requireFinite(tensor, start, bytes);
  return bytes;
}

/** Elements quantized at a time: few enough for a core's own cache. */
const BATCH_ELEMENTS = 1 << 17;

/** Codes of a matrix, made as they are asked for from the first to the last, and then its scales. */
class QuantizedRows {
  readonly #tensor: StoredTensor;
  readonly #format: QuantizedFormat;
  readonly #rowCodes: number;
  readonly #rowScales: number;
  #batch = { first: 0, codes: new Uint8Array(0) };
  #scales: Float32Array<ArrayBuffer> | undefined;
  /** Memory of the batches, used again for each: their codes, and plain elements that were read. */
  #codes = new Uint8Array(0);
  #elements = new Uint8Array(0);

  constructor(tensor: StoredTensor, format: QuantizedFormat) {
    const { codes: [, blocks, blockBytes] } = partShapes(tensor.shape, format);
    [this.#tensor, this.#format] = [tensor, format];
    [this.#rowCodes, this.#rowScales] = [blocks! * blockBytes!, blocks!];
  }

  readonly codes = (start: number, length: number): Uint8Array<ArrayBuffer> => {
    const piece = new Uint8Array(length);
    for (let at = 0; at < length;) {
      const row = Math.floor((start + at) / this.#rowCodes);
      const { first, codes } = this.#rowsFrom(row);
      const from = start + at - first * this.#rowCodes;
      const part = codes.subarray(from, from + length - at);
      piece.set(part, at);
      at += part.length;
    }
    return piece;
  };

  readonly scales = (start: number, length: number): Uint8Array<ArrayBuffer> => {
    const scales = this.#scales!;
    if (start + length === scales.byteLength) this.#scales = undefined; // given once, in order
    return new Uint8Array(scales.buffer, start, length);
  };

  /** The batch that holds a row. */
  #rowsFrom(row: number) {
    const { first, codes } = this.#batch;
    if (row >= first && row < first + codes.length / this.#rowCodes) return this.#batch;
    const [rows, columns] = this.#tensor.shape as [number, number];
    const count = Math.min(rows - row, Math.max(1, Math.floor(BATCH_ELEMENTS / columns)));
    const size = count * this.#rowCodes;
    if (size > this.#codes.length) this.#codes = new Uint8Array(size);
    const made = this.#codes.subarray(0, size);
    this.#scales ??= new Float32Array(rows * this.#rowScales);
    using file = openRegularFile(this.#tensor.path);
    const target = { codes: made, scales: this.#scales.subarray(row * this.#rowScales) };
    const read = this.#readsFrom(file);
    quantizeRows(this.#tensor, { first: row, count }, this.#format, target, read);
    const { buffer, byteOffset } = target.scales;
    const scales = new Uint8Array(buffer, byteOffset, 4 * count * this.#rowScales);
    if (findNonFinite(scales, "f32") !== -1) {
      const rowBytes = columns * ELEMENT_BYTES[this.#tensor.dtype];
      finitePart(this.#tensor, row * rowBytes, count * rowBytes); // names the element
    }
    return this.#batch = { first: row, codes: made };
  }

  #readsFrom(file: Deno.FsFile): ReadBytes {
    const { path, encoding } = this.#tensor;
    if (encoding) return readsFrom(file, path);
    return (offset, length) => {
      if (length > this.#elements.length) this.#elements = new Uint8Array(length);
      const bytes = this.#elements.subarray(0, length);
      readExactlySync(file, path, offset, bytes);
      return bytes;
    };
  }
}
