/**
 * Interface of all devices: plan a program, compile it, keep tensors, run.
 *
 * Everything above `core/runtime` sees only this file. A device owns the memory of its tensors;
 * programs never allocate results, they write into the tensors bound to their output names.
 */
import type { MemoryPlan } from "../graph/memory_plan.ts";
import type { Program } from "../graph/program.ts";
import type { TensorType } from "../graph/types.ts";
import type { FileTensor, QuantizedTensor } from "../quant/stored.ts";
import type { CacheType, DeviceName, Traits } from "./traits.ts";

export type { FileRange, FileTensor, QuantizedTensor } from "../quant/stored.ts";

/** Elements of a tensor in host memory; bf16 and f16 as their 16 bits, bool as bytes. */
export type HostArray = Float32Array | Float64Array | Int32Array | Uint16Array | Uint8Array;

/** A tensor in host memory. */
export interface HostTensor extends TensorType {
  readonly data: HostArray;
}

/** One weight of a model. */
export type Weight = HostTensor | FileTensor | QuantizedTensor;

/** Weights of a model by parameter name; a device stores them as suits it. */
export type Weights = ReadonlyMap<string, Weight>;

/** A tensor a device keeps. Only the device that made it knows what is inside. */
export type DeviceTensor = TensorType;

/** Tensors of one run: every input, state, output and runtime-bound parameter by name. */
export type Bindings = ReadonlyMap<string, DeviceTensor>;

/** A program made ready for a device. */
export interface Executable {
  /**
   * Runs once; resolves when all outputs and state updates are written.
   * @throws {TypeError} when a name is not bound or a bound tensor has another type
   */
  run(bindings: Bindings): Promise<void>;
}

/** A rectangle of elements moved inside or between tensors, as `cuMemcpy2D` does. */
export interface CopyRegion {
  readonly sourceOffset: number;
  readonly sourceStride: number;
  readonly targetOffset: number;
  readonly targetStride: number;
  /** Elements per row. */
  readonly width: number;
  readonly height: number;
}

/** Expected use of a program. */
export interface CompileOptions {
  /**
   * True if the program will not be compiled for other sizes as well. A device may then make it for its
   * sizes alone, which takes less memory and time to run, in place of once for all sizes.
   */
  readonly fixedSizes?: boolean;
}

/** Runs programs. */
export interface Device {
  readonly name: DeviceName;
  readonly traits: Traits;
  /** Element type of KV caches. */
  readonly cacheType: CacheType;
  /**
   * Exact bytes the program needs with these weights, before anything is allocated. Free parameters
   * count as they are bound, one f32 an element.
   */
  plan(program: Program, weights: Weights): MemoryPlan;
  /**
   * Makes a program runnable; its weights stay fixed from here on. A parameter without a weight is
   * free: it is bound at every run, as all are while they are trained.
   */
  compile(program: Program, weights: Weights, options?: CompileOptions): Promise<Executable>;
  /** A zeroed tensor. */
  allocate(type: TensorType): DeviceTensor;
  /** Part of a tensor, from some element on, as a tensor of its own in the same memory. */
  view(tensor: DeviceTensor, start: number, type: TensorType): DeviceTensor;
  /** Overwrites a tensor from host memory. */
  write(tensor: DeviceTensor, data: ArrayLike<number>): void;
  /** Sets every element of a tensor to zero. */
  clear(tensor: DeviceTensor): void;
  /** The elements of a tensor; may be a view that the next run overwrites. */
  read(tensor: DeviceTensor): HostArray;
  /**
   * Starts to read a small tensor once everything issued so far is done, and returns a function that waits for
   * it: the host may issue more work meanwhile, even work that overwrites the tensor. Absent on synchronous
   * devices.
   */
  readLater?(tensor: DeviceTensor): () => HostArray;
  copy(source: DeviceTensor, target: DeviceTensor, region: CopyRegion): void;
  /**
   * Returns a tensor's memory at once; neither it nor a view of it may be used afterwards. Absent on devices
   * whose tensors are garbage-collected.
   */
  free?(tensor: DeviceTensor): void;
  /** Frees everything the device holds; neither it nor its tensors may be used afterwards. */
  close(): void;
}

/** Checks that everything a program exchanges is bound with the right type. */
export function checkBindings(program: Program, weights: Weights, bindings: Bindings): void {
  const free = [...program.parameters].filter(([name]) => !weights.has(name));
  for (const values of [program.inputs, free, program.state, program.outputs]) {
    for (const [name, { dtype, shape }] of values) {
      const bound = bindings.get(name);
      if (bound?.dtype === dtype && bound.shape.join() === shape.join()) continue;
      const found = bound ? `${bound.dtype}[${bound.shape.join(", ")}]` : "nothing";
      throw new TypeError(
        `cannot run ${program.name}: "${name}" is bound to ${found}, ` +
          `expected ${dtype}[${shape.join(", ")}]`,
      );
    }
  }
}
