/** Typed reading of the metadata of a GGUF file; a value of another type is bad data. */
import type { TextList } from "../../base/companions.ts";
import { DataError } from "../../base/errors.ts";
import { openRegularFile, readExactlySync } from "../../base/files.ts";

/** A number, or where a text or a list lies in the file. */
export type MetadataValue =
  | { readonly kind: "number"; readonly value: number }
  | { readonly kind: "text"; readonly offset: number; readonly length: number }
  | {
    readonly kind: "list";
    /** Type of the elements. */
    readonly element: number;
    readonly count: number;
    readonly offset: number;
    readonly length: number;
  };

/** Texts larger than this are not what they claim to be; the largest known have 33 MB. */
const MAX_TEXT_BYTES = 256e6;

/** Numbers that a list may have where it is read: more than there are layers, or tokens. */
const MAX_NUMBERS = 1 << 22;

const [I32, STRING] = [5, 8];

/** Texts of a list as it lies in the file. */
export class Texts implements TextList {
  /** End of each text. */
  readonly #ends: Uint32Array;

  /** Takes the bytes of a list, each text after its length. */
  constructor(readonly bytes: Uint8Array<ArrayBuffer>, count: number) {
    this.#ends = new Uint32Array(count);
    const view = new DataView(bytes.buffer);
    for (let i = 0, at = 0; i < count; i++) {
      at += 8 + view.getUint32(at, true); // the head was checked: nothing reaches 2^32
      this.#ends[i] = at;
    }
  }

  get length(): number {
    return this.#ends.length;
  }

  at(index: number): Uint8Array<ArrayBuffer> {
    return this.bytes.subarray(this.start(index), this.end(index));
  }

  start(index: number): number {
    return 8 + (index === 0 ? 0 : this.#ends[index - 1]!);
  }

  end(index: number): number {
    return this.#ends[index]!;
  }
}

/** The metadata of one file. */
export class Metadata {
  readonly #texts = new Map<string, Texts>();

  constructor(
    private readonly file: string,
    /** Names the file in messages. */
    readonly path: string,
    private readonly values: ReadonlyMap<string, MetadataValue>,
  ) {}

  has(key: string): boolean {
    return this.values.has(key);
  }

  /** A whole number; without a fallback the key is required. */
  integer(key: string, fallback?: number): number {
    const value = this.number(key, fallback);
    if (Number.isSafeInteger(value) && value >= 0) return value;
    throw this.error(key, "a whole number of at least 0");
  }

  number(key: string, fallback?: number): number {
    const value = this.values.get(key);
    if (value === undefined && fallback !== undefined) return fallback;
    if (value?.kind === "number") return value.value;
    throw this.error(key, "a number");
  }

  boolean(key: string, fallback: boolean): boolean {
    return this.number(key, Number(fallback)) !== 0;
  }

  /** A token id or another number that may be absent. */
  optionalInteger(key: string): number | undefined {
    return this.has(key) ? this.integer(key) : undefined;
  }

  text(key: string): string | undefined {
    const value = this.values.get(key);
    if (value === undefined) return undefined;
    if (value.kind !== "text") throw this.error(key, "text");
    try {
      return new TextDecoder("utf-8", { fatal: true }).decode(this.#read(key, value));
    } catch (error) {
      if (error instanceof DataError) throw error;
      throw this.error(key, "text in UTF-8");
    }
  }

  /** The numbers of a list. */
  numbers(key: string): ArrayLike<number> | undefined {
    const value = this.values.get(key);
    if (value === undefined) return undefined;
    if (value.kind !== "list" || value.element === STRING || value.count > MAX_NUMBERS) {
      throw this.error(key, "a list of numbers");
    }
    const bytes = this.#read(key, value), size = value.length / value.count;
    if (value.element === I32) return new Int32Array(bytes.buffer); // of token types there are many
    const view = new DataView(bytes.buffer);
    return Array.from({ length: value.count }, (_, i) => numberAt(view, i * size, value.element));
  }

  /** The texts of a list; read once. */
  texts(key: string): Texts | undefined {
    const value = this.values.get(key);
    if (value === undefined) return undefined;
    return this.#texts.getOrInsertComputed(key, () => this.#readTexts(key, value));
  }

  #readTexts(key: string, value: MetadataValue): Texts {
    if (value.kind !== "list" || value.element !== STRING) throw this.error(key, "a list of texts");
    return new Texts(this.#read(key, value), value.count);
  }

  /** An error about a key; `wanted` completes "… must be". */
  error(key: string, wanted: string): DataError {
    const value = this.values.get(key);
    const shown = value?.kind === "number" ? `, not ${value.value}` : "";
    return new DataError(
      value === undefined
        ? `"${this.path}" lacks ${key}, which must be ${wanted}`
        : `${key} in "${this.path}" must be ${wanted}${shown}`,
      { hints: ["the file may be damaged, or made by another converter; download it again"] },
    );
  }

  #read(
    key: string,
    { offset, length }: { readonly offset: number; readonly length: number },
  ): Uint8Array<ArrayBuffer> {
    if (length > MAX_TEXT_BYTES) throw this.error(key, `at most ${MAX_TEXT_BYTES} bytes`);
    using file = openRegularFile(this.file);
    const bytes = new Uint8Array(length);
    readExactlySync(file, this.path, offset, bytes);
    return bytes;
  }
}

/** Numbers by type: their bytes, and what reads them. */
export const NUMBERS: Readonly<
  Record<number, { readonly bytes: number; readonly read: NumberReader }>
> = {
  0: { bytes: 1, read: "getUint8" },
  1: { bytes: 1, read: "getInt8" },
  2: { bytes: 2, read: "getUint16" },
  3: { bytes: 2, read: "getInt16" },
  4: { bytes: 4, read: "getUint32" },
  5: { bytes: 4, read: "getInt32" },
  6: { bytes: 4, read: "getFloat32" },
  7: { bytes: 1, read: "getUint8" },
  10: { bytes: 8, read: "getBigUint64" },
  11: { bytes: 8, read: "getBigInt64" },
  12: { bytes: 8, read: "getFloat64" },
};

type NumberReader = Extract<keyof DataView, `get${string}`>;

/** The number of a type at a byte; integers above 2^53 lose their last bits. */
export function numberAt(view: DataView, at: number, type: number): number {
  return Number(view[NUMBERS[type]!.read](at, true));
}
