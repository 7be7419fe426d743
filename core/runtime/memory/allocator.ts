/** How the allocator of the C library, which native libraries use, gives memory back. */
import { PLATFORM } from "../../base/platform/mod.ts";

const LEAST_BYTES = 1 << 20;

let isSet = false;

/**
 * Maps every large block on its own, so that it returns to the system when it is freed. Once blocks of up
 * to 32 MiB have been freed, glibc takes others of that size from its heap. ONNX Runtime packs matrix by
 * matrix into blocks a little larger than those that it frees, whose holes then fit none: the heap grew by
 * a quarter of the model. New pages take time: opening a model takes 7% more of it.
 */
export function mapLargeBlocks(): void {
  const { libc, mappedBlocks } = PLATFORM.posix ?? {};
  if (isSet || libc === undefined || mappedBlocks === undefined) return;
  isSet = true;
  const mallopt = { parameters: ["i32", "i32"], result: "i32" } as const;
  const { symbols } = Deno.dlopen(libc, { mallopt });
  symbols.mallopt(mappedBlocks, LEAST_BYTES);
}
