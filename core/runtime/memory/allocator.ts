/** Makes the allocator of the C library, which native libraries use, return memory to the system. */
import { PLATFORM } from "../../base/platform/mod.ts";

/** Matrices are larger. */
const MATRIX_BYTES = 1 << 20;
/** Blocks that training takes once and keeps are larger; from 1 MiB on it held 1 to 2% more. */
const KEPT_BYTES = 4 << 20;

let opened: ReturnType<typeof openAllocator>;

/**
 * Maps every large block on its own, so that it returns to the system when it is freed. Once blocks of up
 * to 32 MiB have been freed, glibc takes others of that size from its heap. ONNX Runtime packs matrix by
 * matrix into blocks a little larger than those that it frees, whose holes then fit none: the heap grew by
 * a quarter of the model. New pages take time: opening a model takes 7% more of it.
 */
export function mapLargeBlocks(): void {
  opened ??= openAllocator();
  opened?.mapBlocksFrom(MATRIX_BYTES);
}

/**
 * Returns to the system what was freed while weights were read, and maps large blocks on their own from
 * here on: for training, whose arena takes its blocks once and never frees them.
 */
export function returnFreedBlocks(): void {
  opened ??= openAllocator();
  opened?.mapBlocksFrom(KEPT_BYTES);
  opened?.trim();
}

/** The settings of glibc; undefined elsewhere. */
function openAllocator() {
  const { libc, mappedBlocks } = PLATFORM.posix ?? {};
  if (libc === undefined || mappedBlocks === undefined) return undefined;
  const { symbols } = Deno.dlopen(libc, {
    mallopt: { parameters: ["i32", "i32"], result: "i32" },
    malloc_trim: { parameters: ["usize"], result: "i32" },
  });
  return {
    mapBlocksFrom: (bytes: number) => symbols.mallopt(mappedBlocks, bytes),
    trim: () => symbols.malloc_trim(0n),
  };
}
