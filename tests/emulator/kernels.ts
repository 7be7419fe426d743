/**
 * Compiled programs of an emulated machine, and their launches.
 *
 * Takes the bytes that `compile` made, in place of a cubin; at a launch, the structures that the
 * driver reads from host memory; returns work for a stream, with the parameters copied as a launch
 * copies them. Addresses among the parameters are checked, since here it is known which of them are
 * some; the end of an allocation may be passed, but nothing behind it.
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
  /** Dynamic shared memory that a launch may ask for. */
  shared: number;
}

const PLAIN_SHARED = 48 * 1024;
const MOST_SHARED = 227 * 1024;
const [MAX_BLOCK, MAX_BLOCK_Z, MAX_GRID_YZ] = [1024, 64, 65535];
/** Numbers of launch attributes. */
const [CLUSTER, EARLY] = [4, 6];
/** Numbers of function attributes. */
const [MAX_DYNAMIC_SHARED, CARVE_OUT, NON_PORTABLE_CLUSTER] = [8, 9, 14];
/** What is known of a kernel by attribute: no spills, and registers that are made up. */
const ATTRIBUTES: Readonly<Record<number, number>> = { 1: 0, 2: 0, 3: 0, 4: 32, 5: 80, 6: 80 };

function bytesAt(address: bigint, bytes: number): DataView {
  const pointer = Deno.UnsafePointer.create(address);
  if (!pointer) throw new EmulatorError("Cannot launch: found a null address in the launch");
  return new DataView(Deno.UnsafePointerView.getArrayBuffer(pointer, bytes));
}

/** CUlaunchConfig, 56 bytes in host memory. */
export class LaunchConfig {
  /** Grid, block, bytes of dynamic shared memory, whether it may start early. */
  readonly geometry: Uint32Array<ArrayBuffer>;
  readonly stream: bigint;
  /** Numbers of the attributes. */
  readonly attributes: readonly number[];

  constructor(address: bigint) {
    const view = bytesAt(address, 56);
    const sizes = Array.from({ length: 7 }, (_, i) => view.getUint32(4 * i, true));
    this.stream = view.getBigUint64(32, true);
    const count = view.getUint32(48, true);
    const list = count > 0 ? bytesAt(view.getBigUint64(40, true), 72 * count) : undefined;
    this.attributes = Array.from({ length: count }, (_, i) => list!.getUint32(72 * i, true));
    this.geometry = Uint32Array.of(...sizes, Number(this.attributes.includes(EARLY)));
  }
}

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
      ...{ name, module, program, index, sizes: Int32Array.from(sizes), shared: PLAIN_SHARED },
      maxThreads: program.emulatedMaxThreads(index),
    });
  }

  has(kernel: bigint): boolean {
    return this.#kernels.has(kernel);
  }

  ask(handle: bigint, attribute: number): number | undefined {
    const kernel = this.#kernels.get(handle);
    if (attribute === 0) return kernel?.maxThreads;
    if (attribute === MAX_DYNAMIC_SHARED) return kernel?.shared;
    return kernel && ATTRIBUTES[attribute];
  }

  allow(handle: bigint, attribute: number, value: number): number {
    const kernel = this.#kernels.get(handle);
    if (!kernel) return CODE.invalidHandle;
    if (attribute === CARVE_OUT || attribute === NON_PORTABLE_CLUSTER) return CODE.success;
    if (attribute !== MAX_DYNAMIC_SHARED || value > MOST_SHARED) return CODE.invalidValue;
    kernel.shared = value;
    return CODE.success;
  }

  /** A launch as work with its parameters copied, or the code that refuses it. */
  prepare(
    config: LaunchConfig,
    handle: bigint,
    parameters: bigint,
  ): { stream: bigint; work: Work } | number {
    const kernel = this.#kernels.get(handle);
    if (!kernel) return CODE.invalidHandle;
    const { geometry, stream, attributes } = config;
    const [x, y, z, blockX, blockY, blockZ, shared] = [...geometry] as Seven;
    const threads = blockX * blockY * blockZ;
    const sizes = [x, y, z, threads];
    if (attributes.includes(CLUSTER)) return CODE.notSupported;
    if (sizes.includes(0) || y > MAX_GRID_YZ || z > MAX_GRID_YZ || x >= 2 ** 31) {
      return CODE.invalidValue;
    }
    if (threads > MAX_BLOCK || blockZ > MAX_BLOCK_Z) return CODE.invalidValue;
    if (threads > kernel.maxThreads || shared > kernel.shared) return CODE.invalidValue;
    const values = this.#copyParameters(kernel, parameters);
    return { stream, work: () => this.#run(kernel, geometry, values) };
  }

  #copyParameters({ name, sizes }: Kernel, parameters: bigint): BigUint64Array<ArrayBuffer> {
    const most = sizes.reduce((sum, size) => sum + Math.max(Math.abs(size), 16) + 128, 128);
    const values = new BigUint64Array(Math.ceil(most / 8) + sizes.length);
    this.#memory.library.machineParameters(values, parameters, sizes, sizes.length);
    const base = Deno.UnsafePointer.value(Deno.UnsafePointer.of(values));
    sizes.forEach((size, i) => {
      if (size > 0) return;
      const address = values[Number(values[i]! - base) / 8]!;
      if (address === 0n || this.#memory.holds(address, 0n)) return;
      throw new EmulatorError(
        `Cannot launch ${name}: found 0x${address.toString(16)} as argument ${i}, ` +
          "expected an address within an allocation",
      );
    });
    return values;
  }

  #run(kernel: Kernel, geometry: Uint32Array<ArrayBuffer>, values: BigUint64Array<ArrayBuffer>) {
    const { machine } = this.#memory;
    const well = kernel.program.emulatedLaunch(machine, kernel.index, geometry, values);
    if (!well) throw new EmulatorError(`Cannot run ${this.#memory.message()}`);
    this.#memory.checkGuards(`after kernel ${kernel.name}`);
  }
}

type Seven = [number, number, number, number, number, number, number];
