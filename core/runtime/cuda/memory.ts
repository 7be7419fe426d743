/**
 * Device memory of tensors and programs.
 *
 * Every tensor has an allocation of its own, returned when nothing refers to it any more. The temporaries
 * of all programs share one arena, since programs run one after the other: it is as large as the largest
 * needs, and a value lies in it where the memory plan put it. When the arena grows it moves.
 */
import type { DType, TensorType } from "../../graph/types.ts";
import type { DeviceTensor } from "../device.ts";
import { Owned } from "../owned.ts";
import type { Driver } from "./driver/driver.ts";

/** Compute dtype of a model; statistics, losses and gradients of parameters are f32. */
export type ComputeType = "f32" | "bf16";

/** Allocations are multiples of this. */
const UNIT = 256;

/** Memory of the device. */
interface Allocation {
  readonly address: bigint;
}

/** Keeps an allocation from being returned. */
export interface Block extends Allocation {
  readonly allocation: Allocation;
}

/** A tensor in device memory. */
export class CudaTensor implements DeviceTensor {
  readonly dtype: DType;
  readonly shape: TensorType["shape"];
  readonly address: bigint;
  readonly block: Block;

  /** A tensor at some byte of a block. */
  constructor({ dtype, shape }: TensorType, block: Block, address = block.address) {
    this.dtype = dtype;
    this.shape = shape;
    this.block = block;
    this.address = address;
  }
}

export class DeviceMemory {
  readonly #allocations: Owned<Allocation>;
  #arena: Block | undefined;
  #arenaBytes = 0;

  constructor(private readonly driver: Driver) {
    this.#allocations = new Owned(({ address }) => driver.free(address));
  }

  /** Address of the arena. */
  get arena(): bigint {
    return this.#arena?.address ?? 0n;
  }

  /**
   * Memory for one tensor, freed when the result is collected.
   * @throws {CudaError} when the device has less memory left
   */
  allocate(bytes: number): Block {
    const address = this.driver.allocate(Math.max(1, Math.ceil(bytes / UNIT)) * UNIT);
    const allocation = { address };
    const block = { address, allocation };
    this.#allocations.add(block, allocation);
    return block;
  }

  /** Returns the memory of a tensor at once. */
  free({ allocation }: Block): void {
    this.#allocations.free(allocation);
  }

  /**
   * Makes the arena hold at least `bytes`; its contents are lost.
   * @throws {CudaError} when the device has less memory left
   */
  reserve(bytes: number): void {
    if (bytes <= this.#arenaBytes) return;
    if (this.#arena) this.free(this.#arena); // waits for the work that uses it
    this.#arena = undefined;
    this.#arenaBytes = 0;
    this.#arena = this.allocate(bytes);
    this.#arenaBytes = bytes;
  }

  /** Returns everything. */
  close(): void {
    this.#allocations.close();
  }
}
