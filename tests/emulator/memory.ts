/**
 * The memory of an emulated machine: what is allocated, what is pinned, copies with checked ends.
 *
 * Device addresses are addresses of this process, so a kernel compiled for the host can use them.
 * Ranges are kept in a list: programs here have few allocations.
 */
import type { DriverSymbols } from "../../core/runtime/cuda/driver/symbols.ts";
import { compileMachine } from "./compiler.ts";

/** Buffer of the driver layer where a function reads or fills host memory. */
export type HostBuffer = Parameters<DriverSymbols["cuDriverGetVersion"]>[0];

/** The bytes of a buffer, whatever kind it is. */
export function viewOf(buffer: HostBuffer): DataView<ArrayBuffer> {
  if (buffer === null) throw new EmulatorError("Cannot answer: found no buffer");
  return ArrayBuffer.isView(buffer)
    ? new DataView(buffer.buffer as ArrayBuffer, buffer.byteOffset, buffer.byteLength)
    : new DataView(buffer as ArrayBuffer);
}

/** Returns the address of a view in this process. */
export function addressOf(view: DataView<ArrayBuffer>): bigint {
  return Deno.UnsafePointer.value(Deno.UnsafePointer.of(view));
}

/** A fault that a real device would leave undefined or report as a bare code, in words. */
export class EmulatorError extends Error {
  override name = "EmulatorError";
}

/** Functions of machine.cpp and product.cpp. */
const SYMBOLS = {
  machineOpen: { parameters: [], result: "pointer" },
  machineMessage: { parameters: ["pointer"], result: "pointer" },
  machineAllocate: { parameters: ["usize"], result: "u64" },
  machineFree: { parameters: ["u64"], result: "void" },
  machineDamaged: { parameters: [], result: "u64" },
  machineCopy: { parameters: ["u64", "u64", "usize"], result: "void" },
  machineSet: { parameters: ["u64", "i32", "usize"], result: "void" },
  machineParameters: { parameters: ["buffer", "u64", "buffer", "i32"], result: "void" },
  machineProduct: { parameters: ["buffer"], result: "i32" },
} as const;

/** Loads the bytes of a library as a copy of its own. */
export function openCopy<T extends Deno.ForeignLibraryInterface>(
  bytes: Uint8Array,
  symbols: T,
): Deno.DynamicLibrary<T> {
  const path = Deno.makeTempFileSync({ prefix: "parscale-emulator-", suffix: ".so" });
  try {
    Deno.writeFileSync(path, bytes);
    return Deno.dlopen(path, symbols);
  } finally {
    Deno.removeSync(path); // what is loaded stays
  }
}

type Kind = "device" | "pinned";

interface Range {
  readonly bytes: bigint;
  readonly kind: Kind;
}

export class Memory {
  /** That of the device whose context is current on this thread. */
  static current: Memory | undefined;
  readonly library = openCopy(compileMachine(), SYMBOLS).symbols;
  readonly machine = this.library.machineOpen();
  /** Bytes that may be allocated on the device. */
  readonly limit: number;
  readonly #ranges = new Map<bigint, Range>();

  constructor(limit: number) {
    this.limit = limit;
  }

  /** The functions of a library, of which those not in `free` need the context of this memory. */
  guarded<T extends object>(
    symbols: T,
    invalidContext: number,
    free: readonly (keyof T)[] = [],
  ): T {
    type Call = (...args: unknown[]) => unknown;
    const guard = (call: Call): Call => (...args) =>
      Memory.current === this ? call(...args) : invalidContext;
    const entries = Object.entries(symbols).map((
      [name, call],
    ) => [name, free.includes(name as keyof T) ? call : guard(call)]);
    return Object.fromEntries(entries) as T;
  }

  /** Bytes allocated on the device and not freed. */
  get used(): number {
    let sum = 0n;
    for (const { kind, bytes } of this.#ranges.values()) if (kind === "device") sum += bytes;
    return Number(sum);
  }

  /** New memory full of NaN; undefined when the limit is reached. */
  allocate(bytes: bigint, kind: Kind): bigint | undefined {
    if (kind === "device" && this.used + Number(bytes) > this.limit) return undefined;
    const base = this.library.machineAllocate(bytes);
    if (base !== 0n) this.#ranges.set(base, { bytes, kind });
    return base || undefined;
  }

  /** Frees what `allocate` gave; false when there is nothing of this kind. */
  free(base: bigint, kind: Kind): boolean {
    if (this.#ranges.get(base)?.kind !== kind) return false;
    this.checkGuards("before it was freed");
    this.#ranges.delete(base);
    this.library.machineFree(base);
    return true;
  }

  /** Returns whether all of it lies in one allocation that a kernel or a copy may use. */
  holds(address: bigint, bytes: bigint, kind?: Kind): boolean {
    return this.#ranges.entries().some(([base, range]) =>
      base <= address && address + bytes <= base + range.bytes &&
      (kind === undefined || kind === range.kind)
    );
  }

  /** @throws {EmulatorError} when something wrote past an allocation; `who` ends the sentence */
  checkGuards(who: string): void {
    const base = this.library.machineDamaged();
    if (base === 0n) return;
    const bytes = this.#ranges.get(base)?.bytes;
    throw new EmulatorError(
      `Cannot continue: found the guard damaged around the allocation of ${bytes} bytes at ` +
        `0x${base.toString(16)} ${who}`,
    );
  }

  /** Returns the message of the last launch that failed. */
  message(): string {
    return Deno.UnsafePointerView.getCString(this.library.machineMessage(this.machine)!);
  }
}
