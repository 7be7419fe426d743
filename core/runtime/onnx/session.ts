/**
 * A loaded model: the ONNX Runtime session, and the memory of its weights.
 *
 * Weights are handed over by address. f32 matrices are packed while the session is made and not read
 * again, so a widened copy is returned to the system right after; whatever lies in the checkpoint in a
 * usable type is mapped from the file and never copied. A session outlives its weights' files on disk.
 */
import type { FileTensor, HostTensor, Weights } from "../device.ts";
import { elementBytes, elementCount, tensorBytes } from "../../graph/types.ts";
import { MemoryMap } from "../memory_map.ts";
import { widenInto } from "../../widen.ts";
import { hostBytes, storedType } from "../weights.ts";
import { type Handle, type OnnxApi, type OnnxType } from "./capi.ts";
import { onnxRuntimePath } from "./library.ts";
import type { Lowered, MatrixFormat, WeightUse } from "./lower.ts";
import { quantize } from "./quantize.ts";

/** What a session is opened with. */
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
    configureMemory(api, this.#options, lowered);
    try {
      for (const [name, use] of lowered.weights) {
        api.addInitializer(this.#options, name, this.#memory.tensor(use));
      }
      this.handle = api.session(lowered.bytes, this.#options);
    } catch (error) {
      api.release("SessionOptions", this.#options);
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

/**
 * Keeps memory near its plan. Our own rewriting shares equal nodes; the library's would undo what is
 * recomputed. In training, sessions share one arena that grows by what is asked for, and there is no
 * memory pattern, which would be a second arena beside the one that the first run filled.
 */
function configureMemory(api: OnnxApi, options: Handle, { weights }: Lowered): void {
  const unwanted = "CommonSubexpressionElimination";
  api.configure(options, "optimization.disable_specified_optimizers", unwanted);
  if (weights.size > 0) return;
  api.disableMemoryPattern(options);
  api.shareArena(options);
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

/** Elements widened at a time while quantising. */
const QUANTIZE_ELEMENTS = 1 << 20;

interface QuantizedMemory {
  readonly codes: MemoryMap;
  readonly scales: MemoryMap;
}

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
  readonly #quantized = new Map<string, QuantizedMemory>();

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
    for (const map of this.#files.values()) map.forgetPages();
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
    const target = new Float32Array(map.buffer(0, weightBytes(use)));
    widenInto(target, this.#bytes(weight), storedType(weight));
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

  /** The stored bytes of a weight from some element on; no copy is made. */
  #bytes(weight: HostTensor | FileTensor, element = 0): Uint8Array {
    const start = element * elementBytes(weight.dtype);
    if (!("path" in weight)) return hostBytes(weight).subarray(start);
    const length = tensorBytes(weight) - start;
    return new Uint8Array(this.#file(weight.path).buffer(weight.offset + start, length));
  }

  #quantize(use: WeightUse, weight: HostTensor | FileTensor): QuantizedMemory {
    const known = this.#quantized.get(use.parameter);
    if (known) return known;
    if (this.#matrices.kind === "f32") throw new TypeError("Cannot quantise to f32");
    const { kind, block } = this.#matrices;
    const bits = kind === "q8" ? 8 : 4;
    const [rows, columns] = weight.shape as [number, number];
    const blocksPerRow = Math.ceil(columns / block);
    const rowBytes = blocksPerRow * block * bits / 8;
    const made = {
      codes: MemoryMap.allocate(rows * rowBytes),
      scales: MemoryMap.allocate(rows * blocksPerRow * 4),
    };
    this.#kept.push(made.codes, made.scales);
    this.#quantized.set(use.parameter, made);
    const codes = new Uint8Array(made.codes.buffer());
    const scales = new Float32Array(made.scales.buffer());
    // A few rows at a time, so that the widened matrix never exists as a whole.
    const step = Math.max(1, Math.floor(QUANTIZE_ELEMENTS / columns));
    const buffer = new Float32Array(Math.min(step, rows) * columns);
    for (let row = 0; row < rows; row += step) {
      const count = Math.min(step, rows - row);
      const values = buffer.subarray(0, count * columns);
      widenInto(values, this.#bytes(weight, row * columns), storedType(weight));
      quantize(values, count, columns, bits, block, {
        codes: codes.subarray(row * rowBytes),
        scales: scales.subarray(row * blocksPerRow),
      });
    }
    return made;
  }
}
