/**
 * Device memory of tensors and programs.
 *
 * Every tensor has an allocation of its own, returned when nothing refers to it any more. The temporaries
 * of all programs share one arena, since programs run one after the other: it is as large as the largest
 * needs, and a value lies in it where the memory plan put it. When the arena grows it moves, so addresses
 * in it hold only for its `generation`.
 */
import type { DType, TensorType } from "../../graph/types.ts";
import type { DeviceTensor } from "../device.ts";
import type { Driver } from "./driver/driver.ts";

/** Compute dtype of a model; statistics, losses and gradients of parameters are f32. */
export type ComputeType = "f32" | "bf16";

/** Allocations are multiples of this. */
const UNIT = 256;

/** One allocation. */
export interface Block {
  readonly address: bigint;
}

/** A tensor in device memory. */
export class CudaTensor implements DeviceTensor {
  readonly dtype: DType;
  readonly shape: TensorType["shape"];
  readonly address: bigint;
  /** Keeps the memory from being returned. */
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
  /** Changes whenever the arena moves. */
  generation = 0;
  /** Address of the arena. */
  arena = 0n;
  readonly #driver: Driver;
  readonly #blocks: FinalizationRegistry<bigint>;
  readonly #live = new Set<bigint>();
  #arenaBytes = 0;

  constructor(driver: Driver) {
    this.#driver = driver;
    this.#blocks = new FinalizationRegistry((address) => {
      try {
        this.#release(address);
      } catch {
        // After a fault nothing can be freed; the next run reports it.
      }
    });
  }

  /**
   * Memory for one tensor, freed when the result is collected.
   * @throws {CudaError} when the device has less memory left
   */
  allocate(bytes: number): Block {
    const address = this.#take(bytes);
    const block = { address };
    this.#blocks.register(block, address, block);
    return block;
  }

  /** Returns the memory of a tensor at once. */
  free(block: Block): void {
    this.#blocks.unregister(block);
    this.#release(block.address);
  }

  /**
   * Makes the arena hold at least `bytes`; its contents are lost.
   * @throws {CudaError} when the device has less memory left
   */
  reserve(bytes: number): void {
    if (bytes <= this.#arenaBytes) return;
    if (this.arena) this.#release(this.arena); // waits for the work that uses it
    this.arena = 0n;
    this.#arenaBytes = 0;
    this.arena = this.#take(bytes);
    this.#arenaBytes = bytes;
    this.generation++;
  }

  /** Returns everything. */
  close(): void {
    for (const address of [...this.#live]) this.#release(address);
  }

  #take(bytes: number): bigint {
    const address = this.#driver.allocate(Math.max(1, Math.ceil(bytes / UNIT)) * UNIT);
    this.#live.add(address);
    return address;
  }

  #release(address: bigint): void {
    if (this.#live.delete(address)) this.#driver.free(address);
  }
}
