/**
 * The memory of the weights of one session on the processor.
 *
 * Weights are handed over by address. Matrices are packed while the session is made and not read again,
 * so a copy in f32 or in codes is returned to the system right after; whatever lies in the checkpoint in
 * a usable type is mapped from the file and never copied. A session outlives its weights' files on disk.
 */
import type { FileRange, FileTensor, HostTensor, Weight, Weights } from "../../device.ts";
import { tensorBytes } from "../../../graph/types.ts";
import { MemoryMap } from "../../memory/memory_map.ts";
import { toF32Into } from "../../../base/dtype.ts";
import { hasAvx2 } from "../../../base/platform/mod.ts";
import { fullPrecision, hostBytes, quantizeWeight, storedType } from "../../weights.ts";
import type { OnnxApi } from "../capi/capi.ts";
import type { Handle } from "../capi/table.ts";
import type { WeightUse } from "../lowering/lower.ts";
import { codesFormat, codesInFile, isTable, PARTS } from "../lowering/weight_parts.ts";
import { type ReadBytes, storedElements } from "../../../quant/stored.ts";
import { type MatrixFormat, packing } from "../../../quant/codes.ts";
import { type Initializers, weightBytes } from "./session.ts";

interface QuantizedMemory {
  readonly codes: MemoryMap;
  readonly scales: MemoryMap;
  readonly offsets?: MemoryMap;
}

let packs: boolean | undefined;

/**
 * Returns whether codes are packed as well: the library does so by kernels for AVX2, and which others it
 * has for them is not known here.
 */
export function packsCodes(): boolean {
  return packs ??= hasAvx2();
}

/** Codes of which rows are read, by parameter and format, and the sessions that use them. */
export type Tables = Map<string, { readonly memory: QuantizedMemory; users: number }>;

export class WeightMemory implements Initializers {
  /** Those of the tables that are used here. */
  readonly #used = new Set<string>();
  readonly #files = new Map<string, MemoryMap>();
  readonly #kept: MemoryMap[] = [];
  /** Copies of matrices that are needed only until they are packed. */
  readonly #packed: MemoryMap[] = [];
  readonly #arrays: ArrayBufferView[] = [];
  readonly #values: Handle[] = [];
  readonly #quantized = new Map<string, QuantizedMemory>();

  /** `tables` are shared by all sessions over the weights: a tied table is packed as a matrix, too. */
  constructor(
    private readonly api: OnnxApi,
    private readonly weights: Weights,
    private readonly matrices: MatrixFormat,
    private readonly tables: Tables,
  ) {
  }

  /** The weight in the form asked for, as a tensor. */
  tensor(use: WeightUse): Handle {
    const weight = this.weights.get(use.parameter);
    if (!weight) throw new TypeError(`cannot load weight "${use.parameter}": it is not given`);
    const address = this.#address(use, weight);
    const value = this.api.tensor(address, weightBytes(use), use.shape, use.type);
    this.#values.push(value);
    return value;
  }

  hostTensor(use: WeightUse): Handle {
    return this.tensor(use);
  }

  /** True if some weights are copies that `loaded` frees. */
  get holdsCopies(): boolean {
    return this.#packed.length > 0;
  }

  /** Returns what packing has made superfluous. */
  loaded(): void {
    for (const map of this.#packed.splice(0)) map.unmap();
    for (const map of this.#files.values()) map.forgetPages();
  }

  close(): void {
    for (const value of this.#values) this.api.release("Value", value);
    for (const map of [...this.#files.values(), ...this.#kept, ...this.#packed]) map.unmap();
    for (const key of this.#used) {
      const table = this.tables.get(key)!;
      if (--table.users > 0) continue;
      this.tables.delete(key);
      table.memory.codes.unmap();
      table.memory.scales.unmap();
    }
    this.#arrays.length = 0;
  }

  #address(use: WeightUse, given: Weight): Deno.PointerValue {
    const inFile = codesInFile(given, use);
    if (inFile) return this.#range(inFile);
    const part = PARTS[use.form], weight = fullPrecision(given);
    if (part) return this.#quantize(use, weight)[part]!.address;
    const isEncoded = "path" in weight && weight.encoding !== undefined;
    if (weight.dtype === use.type && !isEncoded) {
      return "path" in weight
        ? this.#range({ ...weight, byteLength: weightBytes(use) })
        : this.#array(weight.data);
    }
    const map = MemoryMap.allocate(weightBytes(use));
    (use.form === "matrix" ? this.#packed : this.#kept).push(map);
    const target = map.buffer(0, weightBytes(use));
    if (weight.dtype === use.type) this.#bytes(weight, new Uint8Array(target));
    else toF32Into(new Float32Array(target), this.#bytes(weight), storedType(weight));
    this.#forget(weight);
    return map.address;
  }

  #file(path: string): MemoryMap {
    return this.#files.getOrInsertComputed(path, MemoryMap.file);
  }

  #range({ path, offset }: FileRange): Deno.PointerObject {
    return this.#file(path).at(offset);
  }

  #array(data: ArrayBufferView<ArrayBufferLike>): Deno.PointerValue {
    this.#arrays.push(data);
    return Deno.UnsafePointer.of(data as ArrayBufferView<ArrayBuffer>);
  }

  /** The bytes of a weight's elements: plain ones where they are, others decoded into `into`. */
  #bytes(weight: HostTensor | FileTensor, into?: Uint8Array<ArrayBuffer>): Uint8Array {
    if (!("path" in weight)) return hostBytes(weight);
    return storedElements(weight, 0, tensorBytes(weight), this.#reads(weight.path), into);
  }

  #reads(path: string): ReadBytes {
    return (offset, length) => new Uint8Array(this.#file(path).buffer(offset, length));
  }

  /** Lets the system have back the pages of a weight of which a copy was made. */
  #forget(weight: HostTensor | FileTensor): void {
    if (!("path" in weight)) return;
    const bytes = weight.encoding?.byteLength ?? tensorBytes(weight);
    this.#file(weight.path).forgetPages(weight.offset, bytes);
  }

  #quantize(use: WeightUse, weight: HostTensor | FileTensor): QuantizedMemory {
    const format = codesFormat(use, weight, this.matrices);
    const key = `${use.parameter} ${JSON.stringify(format)}`, table = this.tables.get(key);
    if (table) {
      if (!this.#used.has(key)) table.users++;
      this.#used.add(key);
      return table.memory;
    }
    // A matrix is not there any more once it is packed.
    const known = isTable(use) ? undefined : this.#quantized.get(key);
    if (known) return known;
    const { rows, blocks, rowBytes } = packing(weight.shape, format);
    const made = {
      codes: MemoryMap.allocate(rows * rowBytes),
      scales: MemoryMap.allocate(rows * blocks * 4),
      ...(format.offsets && { offsets: MemoryMap.allocate(rows * blocks * 4) }),
    };
    if (isTable(use)) {
      this.tables.set(key, { memory: made, users: 1 });
      this.#used.add(key);
    } else {
      if (made.offsets) this.#packed.push(made.offsets);
      (packsCodes() ? this.#packed : this.#kept).push(made.codes);
      this.#kept.push(made.scales);
      this.#quantized.set(key, made);
    }
    const target = {
      codes: new Uint8Array(made.codes.buffer()),
      scales: new Float32Array(made.scales.buffer()),
      ...(made.offsets && { offsets: new Float32Array(made.offsets.buffer()) }),
    };
    const read = "path" in weight ? this.#reads(weight.path) : undefined;
    quantizeWeight(weight, format, target, read);
    this.#forget(weight);
    return made;
  }
}
