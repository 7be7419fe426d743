/**
 * Memory outside the JavaScript heap: files mapped read-only, and zeroed pages that can be returned.
 *
 * A mapped checkpoint costs no copy and no memory until its pages are read. Nothing here is
 * collected; every mapping must be unmapped, and an address used after that is a crash.
 */
import { EnvironmentError } from "../../base/errors.ts";
import { PLATFORM } from "../../base/platform/mod.ts";
import type { Address, NativeMemory } from "./native_memory.ts";
import { PosixMemory } from "./posix.ts";
import { WindowsMemory } from "./windows.ts";

/** A multiple of the page size of every system; mappings begin at such an address. */
const PAGE_BYTES = 1 << 16;

let opened: NativeMemory | undefined;

function system(): NativeMemory {
  return opened ??= PLATFORM.posix ? new PosixMemory() : new WindowsMemory();
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
  readonly #isFile: boolean;

  private constructor(address: Address, byteLength: number, what: string, isFile: boolean) {
    if (!address) {
      throw new EnvironmentError(`cannot map ${what}: ${byteLength} bytes are not available`, {
        hints: ["close other programs, or use a smaller model or `--quantize q8`"],
      });
    }
    this.address = address;
    this.byteLength = byteLength;
    this.#isFile = isFile;
  }

  /** Zeroed pages. Throws `EnvironmentError` when the system has none left. */
  static allocate(byteLength: number): MemoryMap {
    return new MemoryMap(system().allocate(byteLength), byteLength, "memory", false);
  }

  /** A whole file, read-only. Throws `EnvironmentError` when it cannot be had. */
  static file(path: string): MemoryMap {
    const byteLength = fileSize(path);
    const address = system().mapFile(path, byteLength);
    if (address === undefined) {
      throw new EnvironmentError(`cannot open "${path}"`, {
        hints: ["check its owner and mode, and how many files are open (`ulimit -n`)"],
      });
    }
    return new MemoryMap(address, byteLength, `"${path}"`, true);
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
    const start = offset - offset % PAGE_BYTES;
    system().dropPages(this.at(start), offset + byteLength - start);
  }

  /** Returns the memory to the system. */
  unmap(): void {
    system().release(this.address, this.byteLength, this.#isFile);
  }
}
