/** Checks of a command that has several forms: flags of other forms, and formats of plain text. */
import { UsageError } from "../../core/base/errors.ts";
import { commonFlags } from "../framework/common.ts";
import { MisuseError } from "../framework/misuse.ts";
import { type FlagTable, formatFlag } from "../framework/table.ts";
import type { Invocation } from "../output/document.ts";

/**
 * Refuses flags besides those that the form `form` has, such as `cost ls`, and the common ones, unless the
 * command has one of its own in `table`.
 */
export function refuseOthers(
  invocation: Invocation,
  form: string,
  own: readonly string[] = [],
  table: FlagTable = {},
): void {
  const common = Object.keys(commonFlags).filter((name) => !Object.hasOwn(table, name));
  const known = new Set([...common, ...own]);
  const others = Object.keys(invocation.origins).filter((name) => !known.has(name));
  refuseFlags(invocation, form, others);
}

/** Refuses flags of these names. */
export function refuseFlags(
  { origins, format }: Invocation,
  form: string,
  names: readonly string[],
): void {
  const given = names.filter((name) => origins[name] === "flag");
  if (given.length === 0) return;
  throw new MisuseError(given.map((name) => {
    const flag = formatFlag(name, name === "format" ? format : undefined);
    return { message: `${flag} cannot be combined with ${form}` };
  }));
}

/** Refuses a format where `what` is plain text. */
export function refuseFormat({ format, origins }: Invocation, what: string): void {
  if (format === "table" || origins.format !== "flag") return;
  throw new UsageError(`${what} is plain text: leave out ${formatFlag("format", format)}`);
}
