/**
 * Kernel launches whose arguments are laid out once and rewritten in place.
 *
 * `cuLaunchKernel` takes an array of addresses, one per argument. The array and, after it, the arguments
 * lie in one block of host memory, 8 bytes each. They are read while the call runs, so a launch may be
 * repeated at once with other values; a captured graph keeps those of its capture.
 */

/** Type of one kernel argument. */
export type ArgumentType = "pointer" | "i32" | "i64" | "f32";

/** x, y, z */
export type Extent = readonly [x: number, y: number, z: number];

/** Blocks of a launch, and threads of a block. */
export interface LaunchConfig {
  readonly grid: Extent;
  readonly block: Extent;
}

const LITTLE = true;

/** A kernel with its launch config and arguments. */
export class Launch {
  readonly name: string;
  readonly kernel: bigint;
  readonly config: LaunchConfig;
  /** Host address of the argument array. */
  readonly parameters: bigint;
  readonly #types: readonly ArgumentType[];
  readonly #view: DataView<ArrayBuffer>;

  /** Lays out the arguments; every one is zero until it is set. */
  constructor(kernel: bigint, name: string, types: readonly ArgumentType[], config: LaunchConfig) {
    this.kernel = kernel;
    this.name = name;
    this.config = config;
    this.#types = types;
    this.#view = new DataView(new ArrayBuffer(16 * types.length + 8));
    this.parameters = Deno.UnsafePointer.value(Deno.UnsafePointer.of(this.#view));
    types.forEach((_, i) =>
      this.#view.setBigUint64(8 * i, this.parameters + BigInt(this.#offset(i)), LITTLE)
    );
  }

  /** Sets one argument: addresses and i64 as `bigint`, the rest as numbers. */
  set(index: number, value: number | bigint): void {
    const at = this.#offset(index), type = this.#types[index], view = this.#view;
    if (type === "pointer" && typeof value === "bigint") view.setBigUint64(at, value, LITTLE);
    else if (type === "i64" && typeof value === "bigint") view.setBigInt64(at, value, LITTLE);
    else if (type === "f32" && typeof value === "number") view.setFloat32(at, value, LITTLE);
    else if (type === "i32" && Number.isInteger(value) && value === Number(value) >> 0) {
      view.setInt32(at, value, LITTLE);
    } else {
      throw new TypeError(
        `argument ${index} of ${this.name} is ${typeof value} ${value}, expected ${type ?? "none"}`,
      );
    }
  }

  #offset(index: number): number {
    return 8 * (this.#types.length + index);
  }
}
