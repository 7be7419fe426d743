/**
 * A tensor on the GPU, with a copy in host memory of what was written or read last.
 *
 * The copy serves small things: ids and positions that a program needs on both sides, results that
 * are read. A KV cache is never read, so it has none.
 */
import { elementCount, tensorBytes, type TensorType } from "../../../graph/types.ts";
import type { HostArray } from "../../device.ts";
import { HOST_ARRAYS } from "../../host_device.ts";
import type { Handle } from "../capi/table.ts";
import type { OnnxType } from "../element_types.ts";
import type { OnnxValue } from "../session/executable.ts";
import type { Gpu } from "./gpu.ts";

/** Freed when the tensor is collected. */
export interface Allocation {
  readonly buffer: Handle;
  readonly value: Handle;
}

export class GpuTensor implements OnnxValue {
  readonly dtype: TensorType["dtype"];
  readonly shape: TensorType["shape"];
  readonly allocation: Allocation;
  readonly #gpu: Gpu;
  #copy: HostArray | undefined;
  #isCopyCurrent = false;

  /** Leaves the content undefined. */
  constructor(gpu: Gpu, { dtype, shape }: TensorType) {
    if (dtype === "bf16" || dtype === "bool") {
      throw new TypeError(`cannot keep ${dtype} on webgpu, expected f32, f16 or i32`);
    }
    [this.#gpu, this.dtype, this.shape] = [gpu, dtype, shape];
    const buffer = gpu.allocate(this.byteLength);
    const value = gpu.tensor(buffer, this.byteLength, shape, dtype as OnnxType);
    this.allocation = { buffer, value };
  }

  get value(): Handle {
    return this.allocation.value;
  }

  get byteLength(): number {
    return tensorBytes(this);
  }

  /** Overwrites the first elements, as many as are given. */
  write(data: ArrayLike<number>): void {
    const copy = data.length < elementCount(this.shape) ? this.read() : this.#array;
    copy.set(data);
    this.#gpu.upload(copy, this, this.value);
    this.#isCopyCurrent = true;
  }

  /** The elements; a view that the next `read` or `write` overwrites. */
  read(): HostArray {
    if (!this.#isCopyCurrent) this.#gpu.download(this.value, this, this.#array);
    this.#isCopyCurrent = true;
    return this.#array;
  }

  /** Must be called after the GPU has written into it. */
  changed(): void {
    this.#isCopyCurrent = false;
  }

  get #array(): HostArray {
    return this.#copy ??= new HOST_ARRAYS[this.dtype](elementCount(this.shape));
  }
}
