/**
 * Reads weights as elements of their type, whether they are stored so or in blocks of a GGUF file.
 *
 * Every reader of stored weights comes through `storedElements` or `quantizeRows`.
 */
import { BLOCKS, type BlockType, decodeBlocks } from "./blocks.ts";
import { ELEMENT_BYTES, type WeightType } from "../base/dtype.ts";
import { joinBytes, readExactlySync } from "../base/files.ts";
import {
  fromRow,
  packing,
  quantize,
  type Quantized,
  type QuantizedFormat,
  repack,
} from "./codes.ts";

/** Storage of elements that are not plain, in order. */
export interface Encoding {
  readonly type: BlockType;
  /** Bytes in the file. */
  readonly byteLength: number;
  /**
   * D where the two halves of the rows of each head are interleaved, as GGUF has q and k of Llama: row
   * t·D/2 + i of a head lies at row 2i + t.
   */
  readonly headDim?: number;
}

/** A weight in a file, as this module takes it. */
export interface StoredWeight {
  /** Type of the elements; f32 where they are decoded. */
  readonly dtype: WeightType;
  readonly shape: readonly number[];
  readonly path: string;
  /** Byte position of the first element. */
  readonly offset: number;
  /** Of a weight in a GGUF file that is not plain. */
  readonly encoding?: Encoding;
}

/** A tensor that lies in a file, little-endian and densely unless it has an encoding. */
export interface FileTensor extends StoredWeight {
  /** Format of a matrix whose codes are kept as they are, where the device can. */
  readonly format?: QuantizedFormat;
  /** Format of the codes of which rows of an embedding table are read, where the device can. */
  readonly table?: QuantizedFormat;
}

/** Bytes in a file. */
export interface FileRange {
  readonly path: string;
  readonly offset: number;
  readonly byteLength: number;
}

/** A matrix in codes: these and its scales and offsets in files, as `quantizeRows` makes them. */
export interface QuantizedTensor {
  /** Of `stored`, or f32. */
  readonly dtype: WeightType;
  readonly shape: readonly number[];
  readonly format: QuantizedFormat;
  readonly codes: FileRange;
  readonly scales: FileRange;
  readonly offsets?: FileRange;
  /** The matrix in full, where it is also an embedding table. */
  readonly stored?: FileTensor;
}

/** Returns whether a weight is stored in fewer bits than any type of elements has. */
export function isQuantized({ encoding }: StoredWeight): boolean {
  return encoding !== undefined && BLOCKS[encoding.type].elements > 1;
}

/** Returns bytes of a file. */
export type ReadBytes = (offset: number, length: number) => Uint8Array<ArrayBuffer>;

/** Reads from an open file; throws what the file system throws. */
export function readsFrom(file: Deno.FsFile, path: string): ReadBytes {
  return (offset, length) => {
    const bytes = new Uint8Array(length);
    readExactlySync(file, path, offset, bytes);
    return bytes;
  };
}

/**
 * Bytes `start` to `start + length` of a weight's elements; both are whole elements. Plain ones are those
 * that `read` returns, others are decoded into `into`.
 */
export function storedElements(
  weight: StoredWeight,
  start: number,
  length: number,
  read: ReadBytes,
  into?: Uint8Array<ArrayBuffer>,
): Uint8Array<ArrayBuffer> {
  const { encoding, offset, dtype } = weight;
  if (!encoding) return read(offset + start, length);
  const size = ELEMENT_BYTES[dtype];
  into ??= new Uint8Array(length);
  let done = 0;
  for (const [from, count] of spans(weight, start / size, length / size)) {
    const target = into.subarray(done, done += count * size);
    readSpan(encoding.type, offset, from, target, read);
  }
  return into;
}

/** Elements of a row; those of a vector are rows of one, as biases are permuted like rows. */
function rowLength({ shape }: StoredWeight): number {
  return shape.length === 1 ? 1 : shape.at(-1)!;
}

/** Yields the places of elements `from` to `from + count`: ranges of stored elements, in order. */
function* spans(
  weight: StoredWeight,
  from: number,
  count: number,
): Generator<readonly [from: number, count: number]> {
  const D = weight.encoding?.headDim;
  if (D === undefined) return yield [from, count];
  const width = rowLength(weight);
  for (let at = from, end = from + count; at < end;) {
    const row = Math.floor(at / width), column = at % width;
    const length = Math.min(width - column, end - at);
    yield [storedRow(row, D) * width + column, length];
    at += length;
  }
}

function storedRow(row: number, D: number): number {
  const inHead = row % D;
  return row - inHead + inHead % (D / 2) * 2 + Math.floor(inHead / (D / 2));
}

/** Fills `target` with elements that lie together, from stored element `from` on. */
function readSpan(
  type: BlockType,
  offset: number,
  from: number,
  target: Uint8Array<ArrayBuffer>,
  read: ReadBytes,
): void {
  const { elements, bytes, decode } = BLOCKS[type];
  if (!decode) return target.set(read(offset + from * bytes, target.length));
  const count = target.length / 4;
  const first = Math.floor(from / elements), end = Math.ceil((from + count) / elements);
  const blocks = read(offset + first * bytes, (end - first) * bytes);
  const skipped = from - first * elements;
  const whole = (end - first) * elements === count;
  const values = whole
    ? new Float32Array(target.buffer, target.byteOffset, count)
    : new Float32Array((end - first) * elements);
  decodeBlocks(type, blocks, values);
  if (!whole) target.set(new Uint8Array(values.buffer, skipped * 4, target.length));
}

/** The format whose codes a weight has already, to be repacked without loss. */
export function formatOf({ encoding }: StoredWeight): QuantizedFormat | undefined {
  return encoding && FORMATS[encoding.type];
}

/** Formats that hold the codes of a type as they are. */
const FORMATS: Partial<Readonly<Record<BlockType, QuantizedFormat>>> = {
  Q8_0: { kind: "q8", block: 32 },
  Q4_0: { kind: "q4", block: 32 },
  Q4_1: { kind: "q4", block: 32, offsets: true },
  Q5_0: { kind: "q8", block: 32 },
  Q5_1: { kind: "q8", block: 32, offsets: true },
  Q2_K: { kind: "q4", block: 16, offsets: true },
  Q3_K: { kind: "q4", block: 16 },
  Q4_K: { kind: "q4", block: 32, offsets: true },
  Q5_K: { kind: "q8", block: 32, offsets: true },
  Q6_K: { kind: "q8", block: 16 },
  IQ4_NL: { kind: "q8", block: 32 },
  IQ4_XS: { kind: "q8", block: 32 },
};

/** Rows decoded at a time while quantizing: 4 MiB of f32. */
const BATCH_ELEMENTS = 1 << 20;

/** Codes and scales of rows of a matrix: its own where it has this format, else of its values. */
export function quantizeRows(
  weight: StoredWeight,
  rows: { readonly first: number; readonly count: number },
  format: QuantizedFormat,
  target: Quantized,
  read: ReadBytes,
): void {
  const columns = weight.shape[1]!;
  const packed = packing(weight.shape, format);
  const own = formatOf(weight);
  const repacks = own?.kind === format.kind && own.block === format.block &&
    own.offsets === format.offsets;
  const rowSize = columns * ELEMENT_BYTES[weight.dtype];
  if (!weight.encoding) {
    const bytes = read(weight.offset + rows.first * rowSize, rows.count * rowSize);
    return quantize(bytes, weight.dtype, [rows.count, columns], format, target);
  }
  const step = Math.min(rows.count, Math.max(1, Math.floor(BATCH_ELEMENTS / columns)));
  const buffer = new Uint8Array(repacks ? 0 : step * rowSize);
  for (let done = 0; done < rows.count; done += step) {
    const first = rows.first + done, count = Math.min(step, rows.count - done);
    const part = fromRow(target, done, packed);
    if (repacks) repackRows(weight, { first, count }, format, part, read);
    else {
      const into = buffer.subarray(0, count * rowSize);
      storedElements(weight, first * rowSize, into.length, read, into);
      quantize(into, weight.dtype, [count, columns], format, part);
    }
  }
}

/** Codes and scales of rows that are stored as codes of the same format. */
function repackRows(
  weight: StoredWeight,
  { first, count }: { readonly first: number; readonly count: number },
  format: QuantizedFormat,
  target: Quantized,
  read: ReadBytes,
): void {
  const columns = weight.shape[1]!, { type } = weight.encoding!;
  const { elements, bytes } = BLOCKS[type];
  const parts = [...spans(weight, first * columns, count * columns)].map(([from, length]) =>
    read(weight.offset + from / elements * bytes, length / elements * bytes)
  );
  repack(parts.length === 1 ? parts[0]! : joinBytes(parts), type, format, target);
}
