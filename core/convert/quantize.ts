/**
 * Writes a checkpoint in 8 or 4 bits, which opens by mapping its file.
 *
 * Codes and scales are those that `--quantize` makes of the same checkpoint at run time, so results are
 * equal bit for bit. Matrices are quantized a few rows at a time, beside the hash of the source.
 */
import { createHash } from "node:crypto";
import { DataError } from "../base/errors.ts";
import { fromF32, toF32 } from "../base/dtype.ts";
import type { QuantizedFormat } from "../quant/codes.ts";
import { countParameters, elementCount, EMBEDDING, linearSpecs } from "../model/parameters.ts";
import { startBackboneHash } from "../checkpoint/backbone.ts";
import type { ConversionReport, ConversionRun } from "./convert.ts";
import { writeFile, writeJson } from "../storage/write_file.ts";
import { requireFreeTarget, writeFolder } from "../storage/write_folder.ts";
import {
  type Checkpoint,
  CONFIG_FILE,
  openCheckpoint,
  type StoredTensor,
} from "../checkpoint/open.ts";
import { CARD_FILE, modelCard } from "./model_card.ts";
import type { ConversionOptions } from "./plan.ts";
import { QUANTIZATION_KEY, quantizationJson } from "../checkpoint/quantization.ts";
import { Quantizer } from "../checkpoint/quantizer.ts";
import { finitePart } from "../checkpoint/read.ts";
import {
  copyCompanions,
  type OutputTensor,
  streamTensors,
  writeWeights,
} from "../checkpoint/write.ts";

/** Options of quantizing a checkpoint. */
export interface QuantizationOptions
  extends Pick<ConversionOptions, "model" | "out" | "maxShardSize" | "overwrite"> {
  readonly format: QuantizedFormat;
}

/** A quantization that has been checked and only needs to be carried out. */
export interface QuantizationPlan {
  readonly options: QuantizationOptions;
  readonly source: Checkpoint;
  readonly quantizer: Quantizer;
  /** Tensors written, in file order: those of the quantizer, and others. */
  readonly tensors: readonly OutputTensor[];
  readonly bytes: number;
}

/** Checks what is asked for; writes nothing and reads no weights. */
export async function planQuantization(options: QuantizationOptions): Promise<QuantizationPlan> {
  const source = await openCheckpoint(options.model, { purpose: "`convert`" });
  await requireFreeTarget(options.out, options.overwrite ? "checkpoint" : undefined);
  const { format } = options;
  const matrices = linearSpecs(source.config)
    .map(({ name }) => ({ tensor: source.tensors.get(name)!, format }));
  const quantizer = new Quantizer(matrices);
  const tensors = [...quantizer.tensors, ...otherTensors(source)];
  const bytes = tensors.reduce((sum, { byteLength }) => sum + byteLength, 0);
  return { options, source, quantizer, tensors, bytes };
}

/** Carries out a plan. The new folder appears complete or not at all. */
export function quantizeCheckpoint(
  { options, source, quantizer, tensors, bytes }: QuantizationPlan,
  run: ConversionRun = {},
): Promise<ConversionReport> {
  const { signal } = run;
  const replaces = options.overwrite ? "checkpoint" : undefined;
  return writeFolder(options.out, { replaces, signal }, async (folder) => {
    using _quantizer = quantizer;
    const companions = await copyCompanions(source.files, folder);
    const { maxShardSize: maxShardBytes, format } = options;
    await using sourceHash = startBackboneHash(source, signal);
    const hash = createHash("sha256");
    let done = 0;
    const inspect = (piece: Uint8Array) => {
      hash.update(piece);
      run.onProgress?.(done += piece.length, bytes);
    };
    const stream = { inspect, signal: sourceHash.signal, maxShardBytes };
    const files = await writeWeights(folder, tensors, stream);
    const sourceSha256 = await sourceHash.digest;
    const scheme = { format, sourceSha256, weightsSha256: hash.digest("hex") };
    writeJson(`${folder}/${CONFIG_FILE}`, {
      ...source.configJson,
      [QUANTIZATION_KEY]: quantizationJson(scheme),
    });
    const facts = { folder: options.out, config: source.config, source: source.files };
    const card = await modelCard({ ...facts, backboneSha256: sourceSha256, quantization: format });
    writeFile(`${folder}/${CARD_FILE}`, card);
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

/**
 * Reads all of a quantized folder.
 * @throws {DataError} when it is not what was written
 */
export async function checkQuantized(directory: string, signal?: AbortSignal): Promise<void> {
  const { tensors, quantization } = await openCheckpoint(directory, { quantized: true });
  const { matrices, weightsSha256 } = quantization!;
  const stored = (tensor: StoredTensor): OutputTensor => ({ ...tensor, source: tensor });
  const parts = [...matrices.values()].flatMap(({ name, codes, scales }) =>
    [codes, scales].map((source) => ({ ...source, name, dtype: "u8" as const, shape: [], source }))
  );
  const others = [...tensors.values()].filter(({ name }) => name !== EMBEDDING);
  const all = [...parts, ...[...others, tensors.get(EMBEDDING)!].map(stored)];
  const hash = createHash("sha256");
  await streamTensors(all, { inspect: (piece) => hash.update(piece), signal });
  const found = hash.digest("hex");
  if (found === weightsSha256) return;
  throw new DataError(
    `the weights in "${directory}" were changed: their SHA-256 is ${found}, expected ${weightsSha256}`,
    { hints: ["copy the folder again, or write it again with `convert --quantize`"] },
  );
}

/** Vectors in f32, then the embedding table as it is. */
function otherTensors({ config, tensors }: Checkpoint): OutputTensor[] {
  const known = new Set([EMBEDDING, ...linearSpecs(config).map(({ name }) => name)]);
  const table = tensors.get(EMBEDDING)!;
  return [
    ...[...tensors.values()].filter(({ name }) => !known.has(name)).map(asF32),
    { ...table, source: table },
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
