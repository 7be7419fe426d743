/** Weights as float32 in host memory, wherever and however they are stored. */
import { elementCount, tensorBytes, type TensorType } from "../graph/types.ts";
import { toF32Into, type WeightType } from "../base/dtype.ts";
import {
  dequantize,
  type MatrixFormat,
  quantize,
  type Quantized,
  type QuantizedFormat,
} from "../quant/codes.ts";
import { quantizeRows, type ReadBytes, readsFrom, storedElements } from "../quant/stored.ts";
import { DataError } from "../base/errors.ts";
import type { FileRange, FileTensor, HostTensor, QuantizedTensor, Weight } from "./device.ts";

/** The stored type of a weight, which must be a floating-point one. */
export function storedType({ dtype }: TensorType): WeightType {
  if (dtype === "i32" || dtype === "bool") {
    throw new TypeError(`weights are ${dtype}, expected f32, bf16 or f16`);
  }
  return dtype;
}

/** The elements of a weight in f32, or what its codes stand for. Throws what the file system throws. */
export function weightValues(stored: Weight): Float32Array {
  if ("codes" in stored && !stored.stored) return codedValues(stored);
  const weight = fullPrecision(stored);
  const values = new Float32Array(elementCount(weight.shape));
  toF32Into(values, storedBytes(weight), storedType(weight));
  return values;
}

function codedValues({ shape, format, codes, ...numbers }: QuantizedTensor): Float32Array {
  const { scales, offsets } = numbers;
  const parts = {
    codes: readRange(codes),
    scales: new Float32Array(readRange(scales).buffer),
    ...(offsets && { offsets: new Float32Array(readRange(offsets).buffer) }),
  };
  return dequantize(parts, shape, format);
}

/** The bytes of a weight as they are stored. Throws what the file system throws. */
export function storedBytes(stored: Weight): Uint8Array {
  const weight = fullPrecision(stored);
  if (!("path" in weight)) return hostBytes(weight);
  using file = Deno.openSync(weight.path);
  return storedElements(weight, 0, tensorBytes(weight), readsFrom(file, weight.path));
}

/** Codes and scales of a matrix of plain elements, or of a GGUF file. */
export function quantizeWeight(
  weight: HostTensor | FileTensor,
  format: QuantizedFormat,
  target: Quantized,
  read: ReadBytes | undefined,
): void {
  const { shape } = weight;
  if (!("path" in weight)) {
    return quantize(hostBytes(weight), storedType(weight), shape, format, target);
  }
  const rows = { first: 0, count: shape[0]! };
  if (read) return quantizeRows(weight, rows, format, target, read);
  using file = Deno.openSync(weight.path);
  quantizeRows(weight, rows, format, target, readsFrom(file, weight.path));
}

/** Returns the format of a matrix on a device with this choice: a weight with its own format keeps it. */
export function matrixFormatOf(weight: Weight | undefined, matrices: MatrixFormat): MatrixFormat {
  return weight && "format" in weight && weight.format ? weight.format : matrices;
}

/**
 * The weight with all its bits.
 * @throws {DataError} when there are only codes of it
 */
export function fullPrecision(weight: Weight): HostTensor | FileTensor {
  if (!("codes" in weight)) return weight;
  if (weight.stored) return weight.stored;
  throw new DataError(`full-precision weights are needed, and these are ${weight.format.kind}`);
}

/** Format of a table that is kept in codes, of which rows are read; undefined for any other weight. */
export function tableFormatOf(weight: Weight | undefined): QuantizedFormat | undefined {
  const inFull = weight && "codes" in weight ? weight.stored : weight;
  return inFull && "path" in inFull ? inFull.table : undefined;
}

/** The stored bytes of a weight in host memory. */
export function hostBytes({ data }: HostTensor): Uint8Array {
  return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
}

/** Bytes of a file. Throws what the file system throws. */
export function readRange({ path, offset, byteLength }: FileRange): Uint8Array<ArrayBuffer> {
  using file = Deno.openSync(path);
  return readsFrom(file, path)(offset, byteLength);
}
