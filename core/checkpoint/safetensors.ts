/**
 * The safetensors container: eight bytes of header length, a JSON header, then the data.
 *
 * Reading checks everything before a single weight is touched, as the format's own library does:
 * each tensor lies inside the file, its bytes match type and shape, and together they cover the data
 * section without gap or overlap. Offsets handed out are counted from the start of the file, not, as
 * in the header, from the end of the header.
 */
import { DataError } from "../base/errors.ts";
import { elementCount } from "../model/parameters.ts";
import {
  isObject,
  openRegularFile,
  parseJsonObject,
  readExactlySync,
  show,
} from "../base/files.ts";

/** Bits per element. Types below a byte exist, so bytes would not do. */
const BITS: ReadonlyMap<unknown, number> = new Map(
  Object.entries({
    4: "F4",
    6: "F6_E2M3 F6_E3M2",
    8: "BOOL U8 I8 F8_E5M2 F8_E4M3 F8_E8M0 F8_E4M3FNUZ F8_E5M2FNUZ",
    16: "I16 U16 F16 BF16",
    32: "I32 U32 F32",
    64: "I64 U64 F64 C64",
  }).flatMap(([bits, types]) => types.split(" ").map((type) => [type, Number(bits)])),
);

/** The limit of the reference implementation; a larger length means that this is another format. */
const MAX_HEADER_BYTES = 100_000_000;

/** One tensor as the header describes it. */
export interface HeaderEntry {
  readonly name: string;
  /** As written in the header, for example `BF16`. */
  readonly dtype: string;
  readonly shape: readonly number[];
  /** Position of the first byte in the file. */
  readonly offset: number;
  readonly byteLength: number;
}

/** Reads and validates the header of a safetensors file: tensors in the order of the data section. */
export async function readHeader(path: string): Promise<readonly HeaderEntry[]> {
  using file = openRegularFile(path);
  const { size } = await file.stat();
  const hints = ["the file is truncated, or a pointer left by Git LFS; download it again"];
  const other = (found: string) =>
    new DataError(`"${path}" is not a safetensors file: ${found}`, { hints });
  if (size < 8) throw other(`it has only ${size} bytes`);
  const prefix = new Uint8Array(8);
  readExactlySync(file, path, 0, prefix);
  const length = new DataView(prefix.buffer).getBigUint64(0, true);
  if (length > MAX_HEADER_BYTES || Number(length) + 8 > size) {
    throw other(`header length ${length}, file size ${size} bytes`);
  }
  const header = new Uint8Array(Number(length));
  readExactlySync(file, path, 8, header);
  return parseHeader(header, path, size);
}

/** Makes the error about a tensor; `problem` is a predicate, such as "is truncated". */
type Fail = (tensor: string, problem: string, hints?: string[]) => DataError;

/** Validates header bytes against the length of the file they come from. */
function parseHeader(bytes: Uint8Array, path: string, fileSize: number): HeaderEntry[] {
  const dataOffset = 8 + bytes.length;
  const { __metadata__: metadata = {}, ...tensors } = parseJsonObject(
    bytes,
    path,
    `the header of "${path}"`,
  );
  if (!isObject(metadata) || Object.values(metadata).some((value) => typeof value !== "string")) {
    throw new DataError(
      `__metadata__ in "${path}" must map strings to strings, not be ${show(metadata)}`,
    );
  }
  const fail: Fail = (name, problem, hints = []) =>
    new DataError(`tensor ${show(name)} in "${path}" ${problem}`, { hints });
  const entries = Object.entries(tensors)
    .map(([name, value]) => parseEntry(name, value, dataOffset, fail))
    .sort((a, b) => a.offset - b.offset || a.byteLength - b.byteLength);

  let end = dataOffset;
  for (const { name, offset, byteLength } of entries) {
    if (offset !== end) {
      throw fail(
        name,
        `starts at byte ${offset}, expected ${end}, where the tensor before it ends`,
      );
    }
    end += byteLength;
    if (end > fileSize) {
      throw fail(name, `is truncated: it ends at byte ${end}, and the file has ${fileSize}`, [
        "copy or download the file again",
      ]);
    }
  }
  if (end !== fileSize) {
    throw new DataError(`"${path}" has ${fileSize} bytes, expected ${end} from its header`);
  }
  return entries;
}

function parseEntry(name: string, value: unknown, dataOffset: number, fail: Fail): HeaderEntry {
  if (!isObject(value)) {
    throw fail(name, `is ${show(value)}, expected an object with dtype, shape and data_offsets`);
  }
  const { dtype, shape, data_offsets: offsets } = value;
  const bits = BITS.get(dtype);
  if (bits === undefined) {
    throw fail(name, `has dtype ${show(dtype)}, expected a safetensors dtype`);
  }
  if (!isSizeList(shape) || !Number.isSafeInteger(elementCount(shape) * 8)) {
    throw fail(name, `has shape ${show(shape)}, expected a list of non-negative integers`);
  }
  if (!isSizeList(offsets) || offsets.length !== 2 || offsets[1]! < offsets[0]!) {
    throw fail(name, `has data_offsets ${show(offsets)}, expected [begin, end]`);
  }
  const byteLength = offsets[1]! - offsets[0]!;
  const expected = elementCount(shape) * bits / 8;
  if (byteLength !== expected) {
    const type = `${dtype} of shape [${shape}]`;
    throw fail(name, `has ${byteLength} bytes, expected ${expected} for ${type}`);
  }
  return { name, dtype: dtype as string, shape, offset: dataOffset + offsets[0]!, byteLength };
}

function isSizeList(value: unknown): value is number[] {
  return Array.isArray(value) && value.every((size) => Number.isSafeInteger(size) && size >= 0);
}

/** Header length and header of a file that holds these tensors in this order, padded to 8 bytes. */
export function encodeHeader(
  tensors: readonly Pick<HeaderEntry, "name" | "dtype" | "shape" | "byteLength">[],
): Uint8Array<ArrayBuffer> {
  let begin = 0;
  const fields = tensors.map(({ name, dtype, shape, byteLength }) => {
    const entry = { dtype, shape, data_offsets: [begin, begin += byteLength] };
    return `${JSON.stringify(name)}:${JSON.stringify(entry)}`;
  });
  // Without `format` the official loader refuses the file.
  const json = `{${['"__metadata__":{"format":"pt"}', ...fields].join(",")}}`;
  const text = new TextEncoder().encode(json);
  const padded = Math.ceil(text.length / 8) * 8;
  const bytes = new Uint8Array(8 + padded).fill(0x20, 8 + text.length);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(padded), true);
  bytes.set(text, 8);
  return bytes;
}
