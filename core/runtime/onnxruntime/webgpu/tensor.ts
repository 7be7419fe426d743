/**
 * A tensor on the GPU, with a copy in host memory of what was written or read last.
 *
 * The copy serves small things: ids and positions that a program needs on both sides, results that
 * are read. Large tensors, such as weights, have none.
 */
import { elementCount, formatType, tensorBytes, type TensorType } from "../../../graph/types.ts";
import type { HostArray } from "../../device.ts";
import { HOST_ARRAYS } from "../../host_device.ts";
import type { Handle } from "../capi/table.ts";
import type { OnnxType } from "../element_types.ts";
import type { OnnxValue } from "../session/executable.ts";
import type { Gpu } from "./gpu.ts";

/** Bytes of the largest tensor with a copy. */
const LARGEST_COPY = 2 ** 20;

/** Freed when the tensor is collected. */
export interface Allocation {
  /** Memory; undefined for a view, which keeps the tensor that has it. */
  readonly buffer: Handle | undefined;
  readonly value: Handle;
}

/** Copy in host memory of what tensors over one buffer hold. */
interface HostCopy {
  data?: HostArray;
  isCurrent: boolean;
}

export class GpuTensor implements OnnxValue {
  readonly dtype: TensorType["dtype"];
  readonly shape: TensorType["shape"];
  readonly allocation: Allocation;
  readonly buffer: Handle;
  readonly #gpu: Gpu;
  readonly #copy: HostCopy;
  /** The tensor whose memory a view shows; keeps it from being collected. */
  readonly #base: GpuTensor | undefined;

  /** Leaves the content undefined, unless it is a view of `base`. */
  constructor(gpu: Gpu, { dtype, shape }: TensorType, base?: GpuTensor) {
    if (dtype === "bf16" || dtype === "bool") {
      throw new TypeError(`cannot keep ${dtype} on webgpu, expected f32, f16 or i32`);
    }
    this.#gpu = gpu;
    this.dtype = dtype;
    this.shape = shape;
    this.#base = base;
    this.#copy = base ? base.#copy : { isCurrent: false };
    this.buffer = base?.buffer ?? gpu.allocate(this.byteLength);
    const value = gpu.tensor(this.buffer, this.byteLength, shape, dtype as OnnxType);
    this.allocation = { buffer: base ? undefined : this.buffer, value };
  }

  /** The same elements in another shape. */
  view(start: number, type: TensorType): GpuTensor {
    const isWhole = start === 0 && elementCount(type.shape) === elementCount(this.shape);
    if (isWhole && type.dtype === this.dtype) return new GpuTensor(this.#gpu, type, this);
    throw new RangeError(`a view of ${formatType(this)} cannot be ${formatType(type)} at ${start}`);
  }

  get value(): Handle {
    return this.allocation.value;
  }

  get byteLength(): number {
    return tensorBytes(this);
  }

  /** Overwrites the first elements, as many as are given. */
  write(data: ArrayLike<number>): void {
    const copy = data.length < elementCount(this.shape) ? this.read() : this.#array();
    copy.set(data);
    this.#gpu.upload(copy, this, this.value);
    this.#keep(copy);
  }

  /** The elements; a view that the next `read` or `write` may overwrite. */
  read(): HostArray {
    if (this.#copy.isCurrent) return this.#copy.data!;
    const copy = this.#array();
    this.#gpu.download(this.value, this, copy);
    this.#keep(copy);
    return copy;
  }

  /** Must be called after the GPU has written into it. */
  changed(): void {
    this.#copy.isCurrent = false;
  }

  #keep(data: HostArray): void {
    if (this.byteLength > LARGEST_COPY) return;
    this.#copy.data = data;
    this.#copy.isCurrent = true;
  }

  #array(): HostArray {
    return this.#copy.data ?? new HOST_ARRAYS[this.dtype](elementCount(this.shape));
  }
}
