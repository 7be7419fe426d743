/** The end of this process that runs nothing more. */
import { PLATFORM } from "./mod.ts";

/**
 * Ends this process at once, from any of its threads. An exit would run the destructors of libraries, which
 * crash while another thread is inside one of them.
 */
export function endProcess(code: number): void {
  const { posix } = PLATFORM;
  if (posix) {
    const { symbols } = Deno.dlopen(posix.libc, { _exit: { parameters: ["i32"], result: "void" } });
    return symbols._exit(code);
  }
  const parameters = ["isize", "u32"] as const, thisProcess = -1n;
  const { symbols } = Deno.dlopen("kernel32.dll", {
    TerminateProcess: { parameters, result: "i32" },
  });
  symbols.TerminateProcess(thisProcess, code);
}
