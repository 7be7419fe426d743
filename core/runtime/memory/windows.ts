/** Memory by the functions of kernel32, on Windows. Constants are those of winnt.h and fileapi.h. */
import type { Address, NativeMemory } from "./native_memory.ts";

const SYMBOLS = {
  VirtualAlloc: { parameters: ["pointer", "usize", "u32", "u32"], result: "pointer" },
  VirtualFree: { parameters: ["pointer", "usize", "u32"], result: "i32" },
  VirtualUnlock: { parameters: ["pointer", "usize"], result: "i32" },
  CreateFileW: {
    parameters: ["buffer", "u32", "u32", "pointer", "u32", "u32", "pointer"],
    result: "pointer",
  },
  CreateFileMappingW: {
    parameters: ["pointer", "pointer", "u32", "u32", "u32", "pointer"],
    result: "pointer",
  },
  MapViewOfFile: { parameters: ["pointer", "u32", "u32", "u32", "usize"], result: "pointer" },
  UnmapViewOfFile: { parameters: ["pointer"], result: "i32" },
  CloseHandle: { parameters: ["pointer"], result: "i32" },
} as const;

const MEM_COMMIT = 0x1000, MEM_RESERVE = 0x2000, MEM_RELEASE = 0x8000;
const PAGE_READONLY = 2, PAGE_READWRITE = 4, FILE_MAP_READ = 4;
const GENERIC_READ = 0x80000000, OPEN_EXISTING = 3, FILE_ATTRIBUTE_NORMAL = 0x80;
/** Other processes may read, write, rename and remove the file. */
const SHARE_ALL = 1 | 2 | 4;
const INVALID_HANDLE = 2n ** 64n - 1n;

export class WindowsMemory implements NativeMemory {
  readonly #kernel = Deno.dlopen("kernel32.dll", SYMBOLS).symbols;

  allocate(byteLength: number): Address {
    const type = MEM_RESERVE | MEM_COMMIT;
    return this.#kernel.VirtualAlloc(null, BigInt(byteLength), type, PAGE_READWRITE);
  }

  /** A view keeps its file open, so that both handles can be closed at once. */
  mapFile(path: string, _byteLength: number): Address | undefined {
    const kernel = this.#kernel;
    const file = kernel.CreateFileW(
      wideString(path),
      GENERIC_READ,
      SHARE_ALL,
      null,
      OPEN_EXISTING,
      FILE_ATTRIBUTE_NORMAL,
      null,
    );
    if (!file || Deno.UnsafePointer.value(file) === INVALID_HANDLE) return undefined;
    const mapping = kernel.CreateFileMappingW(file, null, PAGE_READONLY, 0, 0, null);
    const view = mapping && kernel.MapViewOfFile(mapping, FILE_MAP_READ, 0, 0, 0n);
    for (const handle of [mapping, file]) if (handle) kernel.CloseHandle(handle);
    return view;
  }

  /** Unlocking pages that are not locked removes them from the working set. */
  dropPages(start: Deno.PointerObject, byteLength: number): void {
    this.#kernel.VirtualUnlock(start, BigInt(byteLength));
  }

  release(address: Deno.PointerObject, _byteLength: number, isFile: boolean): void {
    if (isFile) this.#kernel.UnmapViewOfFile(address);
    else this.#kernel.VirtualFree(address, 0n, MEM_RELEASE);
  }
}

/** A text in UTF-16 with a zero at its end. */
function wideString(text: string): Uint16Array<ArrayBuffer> {
  return Uint16Array.from(`${text}\0`, (unit) => unit.charCodeAt(0));
}
