/** Refusing what the memory cannot hold. */
import { EnvironmentError } from "../../core/base/errors.ts";
import { memoryInfo } from "../../core/base/platform/mod.ts";
import { bytesText } from "../output/units.ts";

/** Throws unless `bytes` bytes are free; `what` is the subject of the message: "this shape". */
export function requireFreeMemory(bytes: number, what: string, hint: string): void {
  const { available } = memoryInfo();
  if (bytes <= available) return;
  const [needed, free] = [bytesText(bytes), bytesText(available)];
  throw new EnvironmentError(
    `${what} needs ${needed} of memory; ${free} are free`,
    { hints: [hint] },
  );
}
