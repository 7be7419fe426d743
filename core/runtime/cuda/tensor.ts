/** Tensors of the cuda device. */
import type { DType, TensorType } from "../../graph/types.ts";
import type { DeviceTensor } from "../device.ts";
import type { Block } from "./device_memory.ts";

/** Compute dtype of a model. */
export type ElementType = "f32" | "bf16";

/** A tensor in device memory. */
export class CudaTensor implements DeviceTensor {
  readonly dtype: DType;
  readonly shape: TensorType["shape"];
  readonly address: bigint;
  /** Keeps the memory from being returned. */
  readonly block: Block;

  /** A tensor at some byte of a block. */
  constructor({ dtype, shape }: TensorType, block: Block, address = block.address) {
    [this.dtype, this.shape, this.block, this.address] = [dtype, shape, block, address];
  }
}
