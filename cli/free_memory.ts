/** Refuses what would not fit into this machine, before anything is allocated. */
import { EnvironmentError } from "../core/errors.ts";

/** Throws unless so many bytes are free; `purpose` completes "Cannot …". */
export function requireFreeMemory(bytes: number, purpose: string, hint: string): void {
  const { available } = Deno.systemMemoryInfo();
  if (bytes <= available) return;
  throw new EnvironmentError(
    `Cannot ${purpose}: found a plan of ${bytes} bytes, expected at most ${available}, the free memory`,
    { hints: [hint] },
  );
}
