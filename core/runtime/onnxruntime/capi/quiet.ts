/**
 * Keeps native code from writing to stderr for a moment.
 *
 * ONNX Runtime prints what it thinks of an unknown processor, and its GPU layer of every driver that it
 * finds, straight to the descriptor. What is wrong comes back as an error as well, and stderr belongs to
 * the command line.
 */
import { PLATFORM } from "../../../base/platform/mod.ts";

const SYMBOLS = {
  open: { parameters: ["buffer", "i32"], result: "i32" },
  dup: { parameters: ["i32"], result: "i32" },
  dup2: { parameters: ["i32", "i32"], result: "i32" },
  close: { parameters: ["i32"], result: "i32" },
} as const;

const [STDERR, WRITE_ONLY] = [2, 1];

/** Calls `work`, during which nothing arrives on stderr; where that cannot be had, just calls it. */
export function quietly<T>(work: () => T): T {
  if (!PLATFORM.posix) return work();
  const libc = Deno.dlopen(PLATFORM.posix.libc, SYMBOLS);
  const { open, dup, dup2, close } = libc.symbols;
  const nowhere = open(new TextEncoder().encode("/dev/null\0"), WRITE_ONLY);
  const saved = dup(STDERR);
  if (nowhere >= 0 && saved >= 0) dup2(nowhere, STDERR);
  try {
    return work();
  } finally {
    if (nowhere >= 0 && saved >= 0) dup2(saved, STDERR);
    for (const descriptor of [nowhere, saved]) if (descriptor >= 0) close(descriptor);
    libc.close();
  }
}
