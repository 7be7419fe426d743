/**
 * The head of a GGUF file: metadata, and where each tensor lies.
 *
 * Nothing in the file is believed before it is checked against the bytes that are left. Texts and lists
 * stay in the file until they are asked for, so that memory does not depend on what a length claims.
 * Layout: docs/gguf.md of ggml.
 */
import { BLOCKS, type BlockType } from "../../quant/blocks.ts";
import { DataError } from "../../base/errors.ts";
import { openRegularFile, readExactlySync, show } from "../../base/files.ts";
import type { HeaderEntry } from "../safetensors.ts";
import { Metadata, type MetadataValue, numberAt, NUMBERS } from "./metadata.ts";

/** Names of tensor types by id; those of `BLOCKS` can be read, – was removed from the format. */
const TYPES: readonly string[] = [
  ...["F32", "F16", "Q4_0", "Q4_1", "–", "–", "Q5_0", "Q5_1", "Q8_0", "Q8_1"],
  ...["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "Q8_K", "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S"],
  ...["IQ4_NL", "IQ3_S", "IQ2_S", "IQ4_XS", "I8", "I16", "I32", "I64", "F64", "IQ1_M"],
  ...["BF16", "–", "–", "–", "TQ1_0", "TQ2_0", "–", "–", "–", "MXFP4"],
  ...["NVFP4", "Q1_0"],
];

/** Limits that keep a damaged file from asking for absurd work. */
const MAX_KEYS = 100_000, MAX_TENSORS = 1_000_000, MAX_STRINGS = 1 << 22;
const MAX_KEY_BYTES = 65_535, MAX_NAME_BYTES = 64, MAX_ALIGNMENT = 1 << 20;

/** Bytes of the shortest key with a value, and of the shortest tensor description. */
const LEAST_KEY_BYTES = 13, LEAST_TENSOR_BYTES = 33;

/** Bytes read at a time. */
const WINDOW = 1 << 16;

const [STRING, ARRAY, BOOL] = [8, 9, 7];

/** One tensor as the head describes it. */
export interface GgufTensor extends Omit<HeaderEntry, "dtype"> {
  readonly type: BlockType;
  readonly path: string;
}

/** A checked head. */
export interface GgufHead {
  readonly metadata: Metadata;
  readonly tensors: ReadonlyMap<string, GgufTensor>;
}

/**
 * Reads and checks the head of a GGUF file.
 * @throws {DataError} for a file that is damaged, truncated or of a kind that is not supported
 */
export function readGgufHead(path: string): GgufHead {
  using file = openRegularFile(path);
  const realPath = Deno.realPathSync(path);
  const reader = new Reader(file, path, file.statSync().size);
  const [tensorCount, keyCount] = readStart(reader);
  const values = new Map<string, MetadataValue>();
  for (let i = 0; i < keyCount; i++) {
    const key = reader.text(MAX_KEY_BYTES, "a metadata key");
    if (values.has(key)) throw reader.error(`has the key ${show(key)} twice`);
    values.set(key, readValue(reader, key, reader.u32()));
  }
  const metadata = new Metadata(realPath, path, values);
  const infos = Array.from({ length: tensorCount }, () => readTensorInfo(reader));
  return { metadata, tensors: placeTensors(reader, infos, alignmentOf(metadata), realPath) };
}

/** Checks magic, version and counts. */
function readStart(reader: Reader): [tensors: number, keys: number] {
  if (reader.size < 24) {
    throw reader.error(`is not a GGUF file: it has only ${reader.size} bytes`, [
      "the file is truncated, or a pointer left by Git LFS; download it again",
    ]);
  }
  const magic = reader.ascii(4);
  const version = reader.u32();
  if (magic === "FUGG" || magic === "GGUF" && (version & 0xffff) === 0) {
    throw reader.error("is a big-endian GGUF file, which is not supported", [
      "download the little-endian file, or convert it with gguf_convert_endian.py",
    ]);
  }
  if (magic !== "GGUF") {
    throw reader.error(`is not a GGUF file: it begins with ${show(magic)}`, [
      "the file may be a pointer left by Git LFS, or a page of an error; download it again",
    ]);
  }
  if (version !== 2 && version !== 3) {
    throw reader.error(`has GGUF version ${version}, expected 2 or 3`, [
      version === 1 ? "convert the model again with llama.cpp" : "a newer parscale may read it",
    ]);
  }
  const tensors = reader.count("tensors", MAX_TENSORS, LEAST_TENSOR_BYTES);
  return [tensors, reader.count("metadata keys", MAX_KEYS, LEAST_KEY_BYTES)];
}

function readValue(reader: Reader, key: string, type: number): MetadataValue {
  if (type === STRING) {
    const length = reader.length(1, `the value of ${show(key)}`);
    return { kind: "text", offset: reader.skip(length), length };
  }
  if (type !== ARRAY) return { kind: "number", value: readNumber(reader, key, type) };
  const element = reader.u32();
  const isText = element === STRING;
  const size = isText ? 8 : NUMBERS[element]?.bytes;
  if (size === undefined) {
    throw reader.error(
      `has ${element === ARRAY ? "a list of lists" : `a list of type ${element}`} as ${show(key)}`,
    );
  }
  const count = reader.length(size, `the list ${show(key)}`);
  const offset = reader.position;
  if (!isText) reader.skip(count * size);
  else {
    if (count > MAX_STRINGS) throw reader.error(`has ${count} texts in the list ${show(key)}`);
    const what = `a text of ${show(key)}`;
    for (let i = 0; i < count; i++) reader.skip(reader.length(1, what));
  }
  return { kind: "list", element, count, offset, length: reader.position - offset };
}

/** A number; booleans are 0 and 1. */
function readNumber(reader: Reader, key: string, type: number): number {
  if (!(type in NUMBERS)) throw reader.error(`has a value of unknown type ${type} as ${show(key)}`);
  const value = reader.number(type);
  if (type === BOOL && value > 1) {
    throw reader.error(`has the boolean ${value} as ${show(key)}, expected 0 or 1`);
  }
  return value;
}

/** A tensor before its place in the file is known. */
type TensorInfo = Omit<GgufTensor, "path">;

function readTensorInfo(reader: Reader): TensorInfo {
  const name = reader.text(MAX_NAME_BYTES, "a tensor name");
  const rank = reader.u32();
  if (rank < 1 || rank > 4) throw reader.error(`has tensor ${show(name)} with ${rank} axes`);
  const dims = Array.from({ length: rank }, () => reader.u64());
  const type = typeOf(reader, name, reader.u32());
  const { elements, bytes } = BLOCKS[type];
  const product = dims.reduce((product, size) => product * size, 1);
  if (!(product > 0) || !Number.isSafeInteger(product * 4)) {
    throw reader.error(`has tensor ${show(name)} of shape [${dims}]`);
  }
  if (dims[0]! % elements !== 0) {
    throw reader.error(
      `has tensor ${show(name)} with rows of ${dims[0]}, no multiple of a ${type} block`,
    );
  }
  const byteLength = product / elements * bytes;
  // The slowest axis comes first elsewhere here.
  return { name, type, shape: dims.reverse(), byteLength, offset: reader.u64() };
}

function typeOf(reader: Reader, name: string, id: number): BlockType {
  const type = TYPES[id];
  if (type !== undefined && Object.hasOwn(BLOCKS, type)) return type as BlockType;
  const what = type === undefined
    ? `type ${id}, which is newer than this reader`
    : type === "–"
    ? `type ${id}, which was removed from the format`
    : `type ${type}, which is not supported`;
  throw reader.error(`has tensor ${show(name)} of ${what}`, [
    "use a file in F32, F16, BF16, Q4_0 to Q8_0, Q2_K to Q6_K, IQ4_NL or IQ4_XS",
  ]);
}

function alignmentOf(metadata: Metadata): number {
  const alignment = metadata.integer("general.alignment", 32);
  if (alignment >= 1 && alignment <= MAX_ALIGNMENT && Number.isInteger(Math.log2(alignment))) {
    return alignment;
  }
  throw metadata.error("general.alignment", "a power of two");
}

/** Checks that tensors lie in the file, aligned and apart. */
function placeTensors(
  reader: Reader,
  infos: readonly TensorInfo[],
  alignment: number,
  path: string,
): Map<string, GgufTensor> {
  const start = Math.ceil(reader.position / alignment) * alignment;
  const tensors = new Map<string, GgufTensor>();
  for (const info of infos) {
    if (tensors.has(info.name)) throw reader.error(`has tensor ${show(info.name)} twice`);
    if (info.offset % alignment !== 0) {
      throw reader.error(
        `has tensor ${show(info.name)} at offset ${info.offset}, no multiple of ${alignment}`,
      );
    }
    tensors.set(info.name, { ...info, path, offset: start + info.offset });
  }
  const inOrder = [...tensors.values()].sort((a, b) => a.offset - b.offset);
  const end = inOrder.reduce((end, tensor) => Math.max(end, tensor.offset + tensor.byteLength), 0);
  if (end > reader.size) {
    throw reader.error(`is truncated: it has ${reader.size} bytes, expected ${end}`, [
      "copy or download the file again",
    ]);
  }
  for (const [i, { name, offset }] of inOrder.entries()) {
    const before = inOrder[i - 1];
    if (!before || before.offset + before.byteLength <= offset) continue;
    throw reader.error(`has tensors ${show(before.name)} and ${show(name)} in the same bytes`);
  }
  return tensors;
}

/** Reads a file from its start, a window at a time. */
class Reader {
  readonly #window = new Uint8Array(WINDOW);
  readonly #view = new DataView(this.#window.buffer);
  #start = 0;
  #filled = 0;
  position = 0;

  constructor(
    private readonly file: Deno.FsFile,
    private readonly path: string,
    readonly size: number,
  ) {}

  error(problem: string, hints = ["the file may be damaged; download it again"]): DataError {
    return new DataError(`"${this.path}" ${problem}`, { hints });
  }

  /** Place in the window of the next bytes, of which there are no more than it holds. */
  #next(length: number): number {
    const position = this.skip(length);
    if (position < this.#start || position + length > this.#start + this.#filled) {
      this.#start = position;
      this.#filled = Math.min(WINDOW, this.size - position);
      const target = this.#window.subarray(0, this.#filled);
      readExactlySync(this.file, this.path, position, target);
    }
    return position - this.#start;
  }

  /** Passes over bytes and returns where they begin. */
  skip(length: number): number {
    const { position } = this;
    if (position + length > this.size) {
      throw this.error(`is truncated: its head continues after byte ${this.size}`, [
        "copy or download the file again",
      ]);
    }
    this.position += length;
    return position;
  }

  u32(): number {
    return this.#view.getUint32(this.#next(4), true);
  }

  u64(): number {
    const at = this.#next(8);
    const value = this.#view.getUint32(at, true) + this.#view.getUint32(at + 4, true) * 2 ** 32;
    if (Number.isSafeInteger(value)) return value;
    throw this.error(`has the number ${this.#view.getBigUint64(at, true)} in its head`);
  }

  number(type: number): number {
    return numberAt(this.#view, this.#next(NUMBERS[type]!.bytes), type);
  }

  /** A number of things of at least `least` bytes each. */
  length(least: number, what: string): number {
    const count = this.u64();
    if (count * least <= this.size - this.position) return count;
    throw this.error(`is truncated or damaged: ${what} has length ${count}`);
  }

  count(what: string, limit: number, least: number): number {
    const count = this.length(least, `the list of ${what}`);
    if (count > limit) throw this.error(`has ${count} ${what}, at most ${limit} are read`);
    return count;
  }

  ascii(length: number): string {
    return String.fromCharCode(...this.bytes(length));
  }

  bytes(length: number): Uint8Array {
    const at = this.#next(length);
    return this.#window.subarray(at, at + length);
  }

  text(limit: number, what: string): string {
    const length = this.length(1, what);
    if (length > limit) throw this.error(`has ${what} of ${length} bytes, at most ${limit}`);
    try {
      return new TextDecoder("utf-8", { fatal: true }).decode(this.bytes(length));
    } catch (error) {
      if (error instanceof DataError) throw error;
      throw this.error(`has ${what} that is not UTF-8`);
    }
  }
}
