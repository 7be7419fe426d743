/** Ends this process at once, from any thread. */
import { PLATFORM } from "../base/platform/mod.ts";

/**
 * Exits without waiting for other threads, as the runtime would. Returns where the system has no such
 * call.
 */
export function exitNow(code: number): void {
  const { posix } = PLATFORM;
  if (!posix) return;
  const symbols = { _exit: { parameters: ["i32"], result: "void" } } as const;
  Deno.dlopen(posix.libc, symbols).symbols._exit(code);
}
