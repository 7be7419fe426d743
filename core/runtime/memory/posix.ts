/** Memory by `mmap`, on Linux and macOS. */
import { PLATFORM, type PosixNames } from "../../base/platform/mod.ts";
import type { Address, NativeMemory } from "./native_memory.ts";

const SYMBOLS = {
  mmap: { parameters: ["pointer", "usize", "i32", "i32", "i32", "i64"], result: "pointer" },
  madvise: { parameters: ["pointer", "usize", "i32"], result: "i32" },
  munmap: { parameters: ["pointer", "usize"], result: "i32" },
  open: { parameters: ["buffer", "i32"], result: "i32" },
  close: { parameters: ["i32"], result: "i32" },
} as const;

const [READ, WRITE] = [1, 2];
const [SHARED, PRIVATE] = [1, 2];
const FAILED = 2n ** 64n - 1n;

export class PosixMemory implements NativeMemory {
  readonly #libc: Deno.DynamicLibrary<typeof SYMBOLS>["symbols"];

  constructor(private readonly names: PosixNames = PLATFORM.posix!) {
    this.#libc = Deno.dlopen(names.libc, SYMBOLS).symbols;
  }

  allocate(byteLength: number): Address {
    const flags = PRIVATE | this.names.anonymous;
    const address = this.#map(byteLength, READ | WRITE, flags, -1);
    const { hugePages } = this.names;
    // A hint that fails harmlessly where it is unknown; first touches are several times faster with it.
    if (address && hugePages) this.#libc.madvise(address, BigInt(byteLength), hugePages);
    return address;
  }

  mapFile(path: string, byteLength: number): Address | undefined {
    const descriptor = this.#libc.open(new TextEncoder().encode(`${path}\0`), 0);
    if (descriptor < 0) return undefined;
    try {
      return this.#map(byteLength, READ, SHARED, descriptor);
    } finally {
      this.#libc.close(descriptor);
    }
  }

  #map(byteLength: number, protection: number, flags: number, file: number): Address {
    const address = this.#libc.mmap(null, BigInt(byteLength), protection, flags, file, 0n);
    return Deno.UnsafePointer.value(address) === FAILED ? null : address;
  }

  dropPages(start: Deno.PointerObject, byteLength: number): void {
    const { dropPages } = this.names;
    if (dropPages) this.#libc.madvise(start, BigInt(byteLength), dropPages);
  }

  release(address: Deno.PointerObject, byteLength: number): void {
    this.#libc.munmap(address, BigInt(byteLength));
  }
}
