/**
 * A loaded model: the ONNX Runtime session, and the memory of its weights.
 *
 * Weights are handed over by address. f32 matrices are packed while the session is made and not read
 * again, so a widened copy is returned to the system right after; whatever lies in the checkpoint in a
 * usable type is mapped from the file and never copied. A session outlives its weights' files on disk.
 */
import type { FileTensor, HostTensor, Weights } from "../device.ts";
import { elementCount, tensorBytes } from "../../graph/types.ts";
import { MemoryMap } from "../memory_map.ts";
import { weightValues } from "../weights.ts";
import { type Handle, type OnnxApi, type OnnxType } from "./capi.ts";
import { onnxRuntimePath } from "./library.ts";
import type { Lowered, MatrixFormat, WeightUse } from "./lower.ts";
import { quantize, type Quantized } from "./quantize.ts";

/** Options of `openSession`. */
export interface SessionOptions {
  readonly threads: number;
  readonly matrices: MatrixFormat;
}

/** A session and what it needs to stay alive. */
export class Session {
  readonly handle: Handle;
  readonly #api: OnnxApi;
  readonly #memory: WeightMemory;
  readonly #options: Handle;

  /** Loads a lowered program with its weights. */
  constructor(api: OnnxApi, lowered: Lowered, weights: Weights, options: SessionOptions) {
    this.#api = api;
    this.#memory = new WeightMemory(api, weights, options.matrices);
    this.#options = api.sessionOptions(options.threads);
    const library = onnxRuntimePath();
    const folder = library.slice(0, library.lastIndexOf("/"));
    api.configure(this.#options, "session.model_external_initializers_file_folder_path", folder);
    try {
      for (const [name, use] of lowered.weights) {
        api.addInitializer(this.#options, name, this.#memory.tensor(use));
      }
      this.handle = api.session(lowered.bytes, this.#options);
    } catch (error) {
      this.#memory.close();
      throw error;
    }
    this.#memory.dropPacked();
  }

  /** Frees the session and its weights. */
  close(): void {
    this.#api.release("Session", this.handle);
    this.#api.release("SessionOptions", this.#options);
    this.#memory.close();
  }
}

/** Bytes of one weight in the form a program uses. */
export function weightBytes({ type, shape }: WeightUse): number {
  return elementCount(shape) * ONNX_BYTES[type];
}

const ONNX_BYTES: Readonly<Record<OnnxType, number>> = {
  f32: 4,
  i32: 4,
  i64: 8,
  bf16: 2,
  f16: 2,
  u8: 1,
  bool: 1,
};

/** The memory behind the initializers of one session. */
class WeightMemory {
  readonly #api: OnnxApi;
  readonly #weights: Weights;
  readonly #matrices: MatrixFormat;
  readonly #files = new Map<string, MemoryMap>();
  readonly #kept: MemoryMap[] = [];
  /** Widened matrices, needed only until they are packed. */
  readonly #packed: MemoryMap[] = [];
  readonly #arrays: ArrayBufferView[] = [];
  readonly #values: Handle[] = [];
  readonly #quantized = new Map<string, { codes: MemoryMap; scales: MemoryMap }>();

  constructor(api: OnnxApi, weights: Weights, matrices: MatrixFormat) {
    this.#api = api;
    this.#weights = weights;
    this.#matrices = matrices;
  }

  /** The weight in the form asked for, as a tensor. */
  tensor(use: WeightUse): Handle {
    const weight = this.#weights.get(use.parameter);
    if (!weight) throw new TypeError(`Cannot load weight "${use.parameter}": it is not given`);
    const address = this.#address(use, weight);
    const value = this.#api.tensor(address, weightBytes(use), use.shape, use.type);
    this.#values.push(value);
    return value;
  }

  /** Returns what packing has made superfluous. */
  dropPacked(): void {
    for (const map of this.#packed.splice(0)) map.unmap();
  }

  close(): void {
    for (const value of this.#values) this.#api.release("Value", value);
    for (const map of [...this.#files.values(), ...this.#kept, ...this.#packed]) map.unmap();
    this.#arrays.length = 0;
  }

  #address(use: WeightUse, weight: HostTensor | FileTensor): Deno.PointerValue {
    if (use.form === "blocks") return this.#quantize(use, weight).codes.address;
    if (use.form === "scales") return this.#quantize(use, weight).scales.address;
    if (weight.dtype === use.type) {
      return "path" in weight
        ? this.#file(weight.path).at(weight.offset)
        : this.#array(weight.data);
    }
    const map = MemoryMap.allocate(weightBytes(use));
    (use.form === "matrix" ? this.#packed : this.#kept).push(map);
    this.#widen(weight, new Float32Array(map.buffer()));
    return map.address;
  }

  #file(path: string): MemoryMap {
    const map = this.#files.get(path) ?? MemoryMap.file(path);
    this.#files.set(path, map);
    return map;
  }

  #array(data: ArrayBufferView<ArrayBufferLike>): Deno.PointerValue {
    this.#arrays.push(data);
    return Deno.UnsafePointer.of(data as ArrayBufferView<ArrayBuffer>);
  }

  #widen(weight: HostTensor | FileTensor, target: Float32Array): void {
    if (!("path" in weight) || weight.dtype !== "bf16" || weight.offset % 2 !== 0) {
      target.set(weightValues(weight));
      return;
    }
    // Straight from the mapped file, without a copy in between.
    const file = this.#file(weight.path).buffer(weight.offset, tensorBytes(weight));
    const source = new Uint16Array(file);
    const bits = new Uint32Array(target.buffer, target.byteOffset, target.length);
    for (let i = 0; i < bits.length; i++) bits[i] = source[i]! << 16;
  }

  #quantize(
    use: WeightUse,
    weight: HostTensor | FileTensor,
  ): { codes: MemoryMap; scales: MemoryMap } {
    const known = this.#quantized.get(use.parameter);
    if (known) return known;
    if (this.#matrices.kind === "f32") throw new TypeError("Cannot quantise to f32");
    const { kind, block } = this.#matrices;
    const bits = kind === "q8" ? 8 : 4;
    const [rows, columns] = weight.shape as [number, number];
    const blocks = rows * Math.ceil(columns / block);
    const codes = MemoryMap.allocate(blocks * block * bits / 8);
    const scales = MemoryMap.allocate(blocks * 4);
    this.#kept.push(codes, scales);
    const values = new Float32Array(rows * columns);
    this.#widen(weight, values);
    const target: Quantized = {
      codes: new Uint8Array(codes.buffer()),
      scales: new Float32Array(scales.buffer()),
    };
    quantize(values, rows, columns, bits, block, target);
    const made = { codes, scales };
    this.#quantized.set(use.parameter, made);
    return made;
  }
}
