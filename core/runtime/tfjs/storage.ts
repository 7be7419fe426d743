/**
 * Memory of one allocation: a flat tensor of TensorFlow, a host array, or both with the same numbers.
 *
 * TensorFlow's tensors cannot be written into and have no parts that share memory, while ours can and
 * do. So whatever replaces all of an allocation, as most results do, stays with TensorFlow, and what
 * replaces a part of it is written into the host array, from which a tensor is made when it is next
 * read. Long arrays of which programs take views, as in training, therefore cross between the two at
 * every step.
 *
 * TensorFlow keeps arrays it is given and shows arrays it keeps, so every array that crosses is
 * copied.
 */
import type * as tfjs from "@tensorflow/tfjs-core";
import { type DType, elementCount, type TensorType } from "../../graph/types.ts";
import type { HostArray, HostTensor } from "../device.ts";

/** The functions of TensorFlow.js, whichever package they come from. */
export type TensorFlow = typeof tfjs;

/** A tensor of TensorFlow. */
export type Tensor = tfjs.Tensor;

/** Holder of an allocation's tensor, apart from it so that it can be freed after it. */
export interface Slot {
  tensor: Tensor | undefined;
}

/** Returns TensorFlow's name of an element type. */
export function tensorType(dtype: DType): "float32" | "int32" | "bool" {
  if (dtype === "f32") return "float32";
  if (dtype === "i32") return "int32";
  if (dtype === "bool") return "bool";
  throw new TypeError(`cannot compute in ${dtype} on tfjs, expected f32`);
}

export class Storage {
  readonly slot: Slot = { tensor: undefined };
  readonly #tf: TensorFlow;
  readonly #type: TensorType;
  /** Absent when the tensor is newer. */
  #array: HostArray | undefined;

  /** Zeros. */
  constructor(tf: TensorFlow, type: TensorType) {
    [this.#tf, this.#type] = [tf, type];
    const length = elementCount(type.shape);
    const kind = tensorType(type.dtype);
    this.#array = kind === "float32"
      ? new Float32Array(length)
      : kind === "int32"
      ? new Int32Array(length)
      : new Uint8Array(length);
  }

  /** The elements; call `changed` after changing them. */
  get array(): HostArray {
    this.#array ??= this.slot.tensor!.dataSync<"float32">().slice();
    return this.#array;
  }

  /** Drops the tensor, which no longer has the numbers of the array. */
  changed(): void {
    this.slot.tensor?.dispose();
    this.slot.tensor = undefined;
  }

  /** A part as a tensor, which belongs to the caller's scope. */
  get(start: number, { dtype, shape }: TensorType): Tensor {
    const [tf, all, count] = [this.#tf, elementCount(this.#type.shape), elementCount(shape)];
    const upload = (array: HostArray) =>
      tf.tensor(array.slice(), [array.length], tensorType(dtype));
    // Of an array that changes in parts no tensor is made: every part would need all of it anew.
    if (count < all && !this.slot.tensor) {
      return tf.reshape(upload(this.array.subarray(start, start + count)), shape as number[]);
    }
    this.slot.tensor ??= tf.keep(upload(this.array));
    const part = count < all ? tf.slice(this.slot.tensor, [start], [count]) : this.slot.tensor;
    return tf.reshape(part, shape as number[]);
  }

  /** Overwrites a part with a tensor, which stays the caller's. */
  put(start: number, tensor: Tensor): void {
    const all = elementCount(this.#type.shape);
    if (tensor.size === all) {
      this.changed();
      this.slot.tensor = this.#tf.keep(this.#tf.reshape(tensor, [all]));
      this.#array = undefined;
    } else {
      this.array.set(tensor.dataSync<"float32">(), start);
      this.changed();
    }
  }
}

/** A tensor of the device: part or all of an allocation. */
export class TfjsTensor implements HostTensor {
  readonly dtype: DType;
  readonly shape: readonly number[];

  /** Elements of `storage` from `start` on. */
  constructor(readonly storage: Storage, readonly start: number, type: TensorType) {
    this.dtype = type.dtype;
    this.shape = type.shape;
  }

  /** The elements in host memory; after a change `storage.changed` is called. */
  get data(): HostArray {
    return this.storage.array.subarray(this.start, this.start + elementCount(this.shape));
  }
}
