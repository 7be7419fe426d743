/**
 * Kernel launches whose arguments are laid out once and rewritten in place.
 *
 * The driver wants an array of addresses, one per argument, and a structure with grid, block,
 * shared memory, stream and attributes. A `LaunchSite` writes all of that into one block of host
 * memory when it is made; afterwards only what changes is written, and a launch makes no garbage.
 *
 *   bytes   0…  56   CUlaunchConfig
 *          64… 136   one CUlaunchAttribute of 72 bytes
 *         384… 640   addresses of up to 32 arguments
 *         640…       the arguments: 8 bytes each, larger ones at multiples of 128
 *
 * Arguments are read while the launch call runs, so one site may be launched again at once with
 * other values; inside a captured graph the values of the capture stay for good.
 */
import type { Driver } from "./driver.ts";

/** Type of one kernel argument; `map` is a tensor map, 128 bytes by value. */
export type ArgumentType = "pointer" | "i32" | "u32" | "i64" | "f32" | "map";

/** x, y, z */
export type Extent = readonly [x: number, y: number, z: number];

/** How a kernel is spread over the device. */
export interface Geometry {
  readonly grid: Extent;
  readonly block: Extent;
  /** Bytes of dynamic shared memory. */
  readonly shared?: number;
  /** May start before its predecessor in the stream has ended (programmatic dependent launch). */
  readonly early?: boolean;
}

const CONFIG = { grid: 0, block: 12, shared: 24, stream: 32, attributes: 40, count: 48 } as const;
const ATTRIBUTES = 64;
/** Where the value of an attribute begins, after its number and padding. */
const ATTRIBUTE_VALUE = 8;
/** CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION */
const EARLY = 6;
const ADDRESSES = 384;
const MAX_ARGUMENTS = 32;
const ARGUMENTS = ADDRESSES + 8 * MAX_ARGUMENTS;
const MAP_BYTES = 128;
const LITTLE = true;

/** One kernel with one set of argument slots. */
export class LaunchSite {
  readonly name: string;
  readonly #kernel: bigint;
  readonly #types: readonly ArgumentType[];
  readonly #offsets: readonly number[];
  readonly #view: DataView<ArrayBuffer>;
  readonly #config: bigint;
  readonly #parameters: bigint;
  #stream: bigint | undefined;
  /** A grid of nothing, which the driver would refuse. */
  #empty = false;

  /** Lays out a launch of `kernel`; every argument is zero until it is set. */
  constructor(kernel: bigint, name: string, types: readonly ArgumentType[]) {
    if (types.length > MAX_ARGUMENTS) {
      throw new RangeError(
        `kernel ${name} has ${types.length} arguments, expected at most ${MAX_ARGUMENTS}`,
      );
    }
    [this.name, this.#kernel, this.#types] = [name, kernel, types];
    let end = ARGUMENTS;
    this.#offsets = types.map((type) => {
      const at = type === "map" ? Math.ceil(end / MAP_BYTES) * MAP_BYTES : end;
      end = at + (type === "map" ? MAP_BYTES : 8);
      return at;
    });
    // The alignment of an ArrayBuffer is not promised, so that of the maps is made by hand.
    const buffer = new ArrayBuffer(end + MAP_BYTES);
    const base = Deno.UnsafePointer.value(Deno.UnsafePointer.of(buffer));
    const skip = (MAP_BYTES - Number(base % BigInt(MAP_BYTES))) % MAP_BYTES;
    const start = base + BigInt(skip);
    this.#view = new DataView(buffer, skip);
    this.#config = start;
    this.#parameters = start + BigInt(ADDRESSES);
    this.#offsets.forEach((offset, i) =>
      this.#view.setBigUint64(ADDRESSES + 8 * i, start + BigInt(offset), LITTLE)
    );
    this.#view.setBigUint64(CONFIG.attributes, start + BigInt(ATTRIBUTES), LITTLE);
  }

  /** Sets grid, block, shared memory and attributes. */
  setGeometry(geometry: Geometry): void {
    const { grid, block, shared = 0, early } = geometry;
    this.#empty = grid.includes(0);
    this.#extent(CONFIG.grid, grid);
    this.#extent(CONFIG.block, block);
    this.#view.setUint32(CONFIG.shared, shared, LITTLE);
    this.#view.setUint32(ATTRIBUTES, EARLY, LITTLE);
    this.#view.setInt32(ATTRIBUTES + ATTRIBUTE_VALUE, 1, LITTLE);
    this.#view.setUint32(CONFIG.count, early ? 1 : 0, LITTLE);
  }

  /** Sets one argument: addresses and i64 as `bigint`, maps as their 128 bytes, the rest as numbers. */
  set(index: number, value: number | bigint | Uint8Array): void {
    const [at, type, view] = [this.#offsets[index]!, this.#types[index], this.#view];
    if (type === "pointer" && typeof value === "bigint") view.setBigUint64(at, value, LITTLE);
    else if (type === "i64" && typeof value === "bigint") view.setBigInt64(at, value, LITTLE);
    else if (type === "f32" && typeof value === "number") view.setFloat32(at, value, LITTLE);
    else if (type === "i32" && isWithin(value, -(2 ** 31), 2 ** 31)) {
      view.setInt32(at, value, LITTLE);
    } else if (type === "u32" && isWithin(value, 0, 2 ** 32)) view.setUint32(at, value, LITTLE);
    else if (type === "map" && value instanceof Uint8Array && value.length === MAP_BYTES) {
      new Uint8Array(view.buffer, view.byteOffset + at, MAP_BYTES).set(value);
    } else {
      throw new TypeError(
        `argument ${index} of ${this.name} is ${typeof value} ` +
          `${value instanceof Uint8Array ? value.length : value}, expected ${type ?? "none"}`,
      );
    }
  }

  /** Launches with what is set now. */
  launch(driver: Driver, stream: bigint): void {
    if (this.#empty) return;
    if (stream !== this.#stream) {
      this.#view.setBigUint64(CONFIG.stream, stream, LITTLE);
      this.#stream = stream;
    }
    driver.launch(this.#kernel, this.#config, this.#parameters, this.name);
  }

  #extent(at: number, [x, y, z]: Extent): void {
    this.#view.setUint32(at, x, LITTLE);
    this.#view.setUint32(at + 4, y, LITTLE);
    this.#view.setUint32(at + 8, z, LITTLE);
  }
}

function isWithin(value: unknown, least: number, end: number): value is number {
  return Number.isInteger(value) && (value as number) >= least && (value as number) < end;
}
