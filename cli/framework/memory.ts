/** Memory of the machine and of this process. */
import { EnvironmentError } from "../../core/base/errors.ts";
import { bytesText } from "../output/units.ts";

/** Throws unless so many bytes are free; `what` is the subject of the message: "this shape". */
export function requireFreeMemory(bytes: number, what: string, hint: string): void {
  const { available } = Deno.systemMemoryInfo();
  if (bytes <= available) return;
  const [needed, free] = [bytesText(bytes), bytesText(available)];
  throw new EnvironmentError(
    `${what} needs ${needed} of memory; ${free} are free`,
    { hints: [hint] },
  );
}

/** Most memory this process has held so far, in bytes; null where the system does not say. */
export function peakMemory(): number | null {
  if (Deno.build.os !== "linux") return null;
  try {
    const status = Deno.readTextFileSync("/proc/self/status");
    const kilobytes = /^VmHWM:\s+(\d+) kB$/m.exec(status)?.[1];
    return kilobytes === undefined ? null : Number(kilobytes) * 1024;
  } catch {
    return null; // without permission to read it, or without /proc
  }
}
