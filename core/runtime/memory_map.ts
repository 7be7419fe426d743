/**
 * Memory outside the JavaScript heap: files mapped read-only, and zeroed pages that can be returned.
 *
 * A mapped checkpoint costs no copy and no memory until its pages are read. Nothing here is
 * collected; every mapping must be unmapped, and an address used after that is a crash.
 */
import { EnvironmentError } from "../base/errors.ts";
import { LIBC } from "./libc.ts";

const SYMBOLS = {
  mmap: { parameters: ["pointer", "usize", "i32", "i32", "i32", "i64"], result: "pointer" },
  madvise: { parameters: ["pointer", "usize", "i32"], result: "i32" },
  munmap: { parameters: ["pointer", "usize"], result: "i32" },
  open: { parameters: ["buffer", "i32"], result: "i32" },
  close: { parameters: ["i32"], result: "i32" },
} as const;

const [READ, WRITE] = [1, 2];
const [SHARED, PRIVATE] = [1, 2];
const ANONYMOUS = Deno.build.os === "darwin" ? 0x1000 : 0x20;
const DONT_NEED = 4;
const HUGE_PAGES = 14;
/** A multiple of the page size of every system; mappings begin at such an address. */
const PAGE_BYTES = 1 << 16;
const FAILED = 2n ** 64n - 1n;

let libc: Deno.DynamicLibrary<typeof SYMBOLS>["symbols"] | undefined;

function symbols(): Deno.DynamicLibrary<typeof SYMBOLS>["symbols"] {
  const name = LIBC[Deno.build.os];
  if (!name) {
    throw new EnvironmentError(
      `memory mapping is not supported on ${Deno.build.os}, only on ${
        Object.keys(LIBC).join(", ")
      }`,
    );
  }
  return libc ??= Deno.dlopen(name, SYMBOLS).symbols;
}

function fileSize(path: string): number {
  try {
    const { size } = Deno.statSync(path);
    if (size > 0) return size;
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
    throw new EnvironmentError(`no such file: "${path}"`);
  }
  throw new EnvironmentError(`"${path}" is empty`);
}

/** A range of mapped memory. */
export class MemoryMap {
  readonly address: Deno.PointerObject;
  readonly byteLength: number;

  private constructor(address: Deno.PointerObject, byteLength: number) {
    this.address = address;
    this.byteLength = byteLength;
  }

  /** Zeroed pages. Throws `EnvironmentError` when the system has none left. */
  static allocate(byteLength: number): MemoryMap {
    const map = MemoryMap.#map(byteLength, READ | WRITE, PRIVATE | ANONYMOUS, -1, "memory");
    // A hint that fails harmlessly where it is unknown; first touches are several times faster with it.
    if (Deno.build.os === "linux") symbols().madvise(map.address, BigInt(byteLength), HUGE_PAGES);
    return map;
  }

  /** A whole file, read-only. Throws `EnvironmentError` when it cannot be had. */
  static file(path: string): MemoryMap {
    const byteLength = fileSize(path);
    const descriptor = symbols().open(new TextEncoder().encode(`${path}\0`), 0);
    if (descriptor < 0) {
      throw new EnvironmentError(`cannot open "${path}"`, {
        hints: ["check its owner and mode, and how many files are open (`ulimit -n`)"],
      });
    }
    try {
      return MemoryMap.#map(byteLength, READ, SHARED, descriptor, `"${path}"`);
    } finally {
      symbols().close(descriptor);
    }
  }

  static #map(byteLength: number, protection: number, flags: number, file: number, what: string) {
    const address = symbols().mmap(null, BigInt(byteLength), protection, flags, file, 0n);
    if (!address || Deno.UnsafePointer.value(address) === FAILED) {
      throw new EnvironmentError(`cannot map ${what}: ${byteLength} bytes are not available`, {
        hints: ["close other programs, or use a smaller model or `--quantize q8`"],
      });
    }
    return new MemoryMap(address, byteLength);
  }

  /** The address of a byte. */
  at(offset: number): Deno.PointerObject {
    return Deno.UnsafePointer.offset(this.address, offset)!;
  }

  /** The memory as a buffer; not to be touched after `unmap`. */
  buffer(offset = 0, byteLength: number = this.byteLength - offset): ArrayBuffer {
    return Deno.UnsafePointerView.getArrayBuffer(this.at(offset), byteLength);
  }

  /**
   * Lets go of the resident pages of a mapped file that touch a range; a later read brings them back.
   */
  forgetPages(offset = 0, byteLength: number = this.byteLength - offset): void {
    if (Deno.build.os !== "linux") return;
    const start = offset - offset % PAGE_BYTES;
    symbols().madvise(this.at(start), BigInt(offset + byteLength - start), DONT_NEED);
  }

  /** Returns the memory to the system. */
  unmap(): void {
    symbols().munmap(this.address, BigInt(this.byteLength));
  }
}
