/**
 * One device allocation for a whole program, carved by its exact memory plan.
 *
 * Comes in: the plan (offsets of every value within its section) and extra workspaces by name. Goes
 * out: a device address for each. One allocation, since each one makes the device wait. Nothing here
 * has run on a GPU yet.
 *
 * What surprises: sections and workspaces begin at multiples of 256 bytes, but values lie as the plan
 * has them, at multiples of 64: enough for every vector load and for tensor maps.
 */
import type { MemoryPlan, Section } from "../../graph/memory_plan.ts";
import { formatType, type Value } from "../../graph/types.ts";
import type { Driver } from "./driver.ts";

const ALIGNMENT = 256;

/** Resident sections first, so that they keep their place while temporaries change. */
const ORDER: readonly Section[] = ["parameters", "state", "inputs", "outputs", "temporaries"];

/** Where each part of an arena begins, before anything is allocated. */
export interface ArenaLayout {
  readonly sections: Readonly<Record<Section, number>>;
  readonly workspaces: ReadonlyMap<string, number>;
  /** Bytes to allocate. */
  readonly bytes: number;
}

/** Lays the sections of a plan and the workspaces [bytes by name] end to end. */
export function layOutArena(
  plan: MemoryPlan,
  workspaces: ReadonlyMap<string, number> = new Map(),
): ArenaLayout {
  let bytes = 0;
  const take = (size: number) => {
    const at = bytes;
    bytes += Math.ceil(size / ALIGNMENT) * ALIGNMENT;
    return at;
  };
  const sections = Object.fromEntries(
    ORDER.map((section) => [section, take(plan.sections[section])]),
  ) as Record<Section, number>;
  const extra = new Map([...workspaces].map(([name, size]) => [name, take(size)]));
  return { sections, workspaces: extra, bytes };
}

/** The memory of one program on the device. */
export class DeviceArena {
  readonly layout: ArenaLayout;
  readonly #driver: Driver;
  readonly #plan: MemoryPlan;
  readonly #base: bigint;

  /**
   * Allocates exactly what the layout says.
   * @throws {CudaError} when the device has less memory left
   */
  constructor(driver: Driver, plan: MemoryPlan, workspaces?: ReadonlyMap<string, number>) {
    this.layout = layOutArena(plan, workspaces);
    [this.#driver, this.#plan] = [driver, plan];
    this.#base = driver.allocate(Math.max(this.layout.bytes, ALIGNMENT));
  }

  /** Device address of a value of the planned program. */
  address(value: Value): bigint {
    const placement = this.#plan.placements.get(value);
    if (!placement) {
      throw new TypeError(`Cannot address ${formatType(value)}: found no place for it in the plan`);
    }
    return this.#base + BigInt(this.layout.sections[placement.section] + placement.offset);
  }

  /** Device address of a workspace. */
  workspace(name: string): bigint {
    const offset = this.layout.workspaces.get(name);
    if (offset === undefined) {
      const known = [...this.layout.workspaces.keys()].join(", ") || "none";
      throw new TypeError(`Cannot address workspace "${name}": found ${known}`);
    }
    return this.#base + BigInt(offset);
  }

  /** Frees the memory; no address of it may be used afterwards. */
  free(): void {
    this.#driver.free(this.#base);
  }
}
