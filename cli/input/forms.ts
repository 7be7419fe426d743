/** Checks of a command that has several forms: flags of other forms, and formats of plain text. */
import { UsageError } from "../../core/base/errors.ts";
import { commonFlags } from "../framework/common.ts";
import { formatFlag } from "../framework/table.ts";
import type { Invocation } from "../output/document.ts";

/** Refuses flags besides the common ones and those that the form `form` has, such as `cost ls`. */
export function refuseOthers(
  { origins }: Invocation,
  form: string,
  own: readonly string[] = [],
): void {
  const known = new Set([...Object.keys(commonFlags), ...own]);
  for (const [name, origin] of Object.entries(origins)) {
    if (origin !== "flag" || known.has(name)) continue;
    throw new UsageError(`${formatFlag(name)} cannot be combined with ${form}`);
  }
}

/** Refuses a format where `what` is plain text. */
export function refuseFormat({ format, origins }: Invocation, what: string): void {
  if (format === "table" || origins.format !== "flag") return;
  throw new UsageError(`${what} is plain text: leave out ${formatFlag("format", format)}`);
}
