/**
 * Compiled programs of an emulated machine, and their launches.
 *
 * Takes the bytes that `compile` made, in place of a cubin; a launch copies its parameters and becomes work
 * for a stream. Addresses among the parameters are checked: the end of an allocation may be passed, but
 * nothing behind it.
 */
import { EmulatorError, type Memory, openCopy } from "./memory.ts";
import { CODE, Handles, type Work } from "./streams.ts";

/** Functions of every compiled program. */
const SYMBOLS = {
  emulatedFind: { parameters: ["buffer"], result: "i32" },
  emulatedParameter: { parameters: ["i32", "i32"], result: "i32" },
  emulatedMaxThreads: { parameters: ["i32"], result: "i32" },
  emulatedLaunch: { parameters: ["pointer", "i32", "buffer", "buffer"], result: "i32" },
} as const;

type Program = Deno.DynamicLibrary<typeof SYMBOLS>;

interface Kernel {
  readonly name: string;
  readonly module: bigint;
  readonly program: Program["symbols"];
  readonly index: number;
  /** Bytes of each parameter, negative for addresses. */
  readonly sizes: Int32Array<ArrayBuffer>;
  readonly maxThreads: number;
}

const MAX_BLOCK = 1024;
const MAX_BLOCK_Z = 64;
const MAX_GRID_YZ = 65535;

export class Modules {
  readonly #memory: Memory;
  readonly #modules = new Handles<Program>();
  readonly #kernels = new Handles<Kernel>();

  constructor(memory: Memory) {
    this.#memory = memory;
  }

  load(bytes: DataView): bigint {
    const copy = new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    return this.#modules.add(openCopy(copy, SYMBOLS));
  }

  unload(module: bigint): boolean {
    this.#modules.get(module)?.close();
    for (const [handle, kernel] of this.#kernels) {
      if (kernel.module === module) this.#kernels.delete(handle);
    }
    return this.#modules.delete(module);
  }

  /** A kernel by name; undefined where the program has none. */
  find(module: bigint, name: string): bigint | undefined {
    const program = this.#modules.get(module)?.symbols;
    const index = program?.emulatedFind(new TextEncoder().encode(`${name}\0`)) ?? -1;
    if (!program || index < 0) return undefined;
    const sizes: number[] = [];
    for (let size; (size = program.emulatedParameter(index, sizes.length)) !== 0;) sizes.push(size);
    return this.#kernels.add({
      ...{ name, module, program, index, sizes: Int32Array.from(sizes) },
      maxThreads: program.emulatedMaxThreads(index),
    });
  }

  /** A launch as work with its parameters copied, or the code that refuses it. */
  prepare(handle: bigint, config: readonly number[], parameters: bigint): Work | number {
    const kernel = this.#kernels.get(handle);
    if (!kernel) return CODE.invalidHandle;
    const [x = 0, y = 0, z = 0, blockX = 0, blockY = 0, blockZ = 0] = config;
    const threads = blockX * blockY * blockZ;
    const isLegal = x * y * z * threads > 0 && x < 2 ** 31 && y <= MAX_GRID_YZ &&
      z <= MAX_GRID_YZ && blockZ <= MAX_BLOCK_Z &&
      threads <= Math.min(MAX_BLOCK, kernel.maxThreads);
    if (!isLegal) return CODE.invalidValue;
    const values = this.#copyParameters(kernel, parameters);
    return () => this.#run(kernel, Uint32Array.from(config), values);
  }

  #copyParameters({ name, sizes }: Kernel, parameters: bigint): BigUint64Array<ArrayBuffer> {
    const values = new BigUint64Array(2 * sizes.length + 1);
    this.#memory.library.machineParameters(values, parameters, sizes, sizes.length);
    sizes.forEach((size, i) => {
      const address = values[sizes.length + i]!;
      if (size > 0 || address === 0n || this.#memory.holds(address, 0n)) return;
      throw new EmulatorError(
        `Cannot launch ${name}: found 0x${address.toString(16)} as argument ${i}, ` +
          "expected an address within an allocation",
      );
    });
    return values;
  }

  #run(kernel: Kernel, config: Uint32Array<ArrayBuffer>, values: BigUint64Array<ArrayBuffer>) {
    const { machine } = this.#memory;
    const well = kernel.program.emulatedLaunch(machine, kernel.index, config, values);
    if (!well) throw new EmulatorError(`Cannot run ${this.#memory.message()}`);
    this.#memory.checkGuards(`after kernel ${kernel.name}`);
  }
}
