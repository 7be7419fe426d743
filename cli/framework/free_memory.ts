/** Refuses what would not fit into this machine, before anything is allocated. */
import { EnvironmentError } from "../../core/base/errors.ts";
import { bytesText } from "../output/units.ts";

/** Throws unless so many bytes are free; `purpose` completes "Cannot …". */
export function requireFreeMemory(bytes: number, purpose: string, hint: string): void {
  const { available } = Deno.systemMemoryInfo();
  if (bytes <= available) return;
  const [needed, free] = [bytesText(bytes), bytesText(available)];
  throw new EnvironmentError(
    `Cannot ${purpose}: found a plan of ${needed}, expected at most ${free}, the free memory`,
    { hints: [hint] },
  );
}
