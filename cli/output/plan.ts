/**
 * The output of `--dry-run`: what the command would do, then the flags that were chosen or follow from
 * model and data; all of them with `-v` and in documents.
 *
 * The JSON form is a document whose `config` member makes it a valid `--config`.
 */
import { type ConfigValue, type Flag, type FlagTable, snakeCase } from "../framework/table.ts";
import { formatValue } from "../framework/values.ts";
import { buildDocument, type Invocation, toJson } from "./document.ts";
import type { Io } from "./io.ts";
import { csvLine, markdownTable, plainTable, terminalTable } from "./table.ts";

/** Text of `--dry-run`. */
export interface PlanText {
  /** For readers, a line each. */
  readonly lines: readonly string[];
  /** Values of flags that were not given, by long name. */
  readonly values?: Readonly<Record<string, ConfigValue>>;
  /** The numbers among the lines, for programs. */
  readonly results?: Readonly<Record<string, unknown>>;
}

/** A value as it is typed; what the absence of one means, where help says so. */
function valueText(flag: Flag, value: ConfigValue): string | null {
  const isAbsent = value === null || (Array.isArray(value) && value.length === 0);
  return isAbsent ? flag.defaultText ?? null : formatValue(flag, value);
}

/** Values of a list that a reader is shown. */
const MOST = 3;

/** The value for a reader: long lists by their first value and the number of the others. */
function shortValue(flag: Flag, value: ConfigValue): string | null {
  if (!Array.isArray(value) || value.length <= MOST) return valueText(flag, value);
  return `${valueText(flag, value.slice(0, 1))} and ${value.length - 1} more`;
}

/** Prints the plan on stdout, also when the result itself would go to a file: nothing is touched. */
export async function showPlan(
  io: Io,
  invocation: Invocation,
  table: FlagTable,
  { lines, values = {}, results }: PlanText,
): Promise<void> {
  const { origins, format } = invocation;
  const config = { ...invocation.config, ...values };
  if (format === "json" || format === "jsonl") {
    const head = { schema: "parscale.plan/2" };
    const document = buildDocument({ ...invocation, config }, head, 0, { plan: lines, ...results });
    const byKey = Object.entries(origins).map(([name, origin]) => [snakeCase(name), origin]);
    const whole = { ...document, origins: Object.fromEntries(byKey) };
    io.write(toJson(whole, format === "json" ? 2 : 0) + "\n");
    return;
  }
  const isAll = format === "csv" || io.settings.verbose > 0;
  const isDefault = (name: string) => origins[name] === "default";
  const names = Object.keys(config).filter((name) => isAll || !isDefault(name) || name in values)
    .sort((a, b) => Number(isDefault(a)) - Number(isDefault(b)));
  const rows = names.map((name) => ({
    flag: `--${name}`,
    value: (format === "csv" ? valueText : shortValue)(table[name]!, config[name]!),
    origin: origins[name]!,
  }));
  const columns = ["flag", "value", "origin"].map((key) => ({ key }));
  if (format === "csv") {
    const records = rows.map((row) => csvLine([row.flag, row.value, row.origin]));
    io.write(csvLine(columns.map(({ key }) => key)) + records.join(""));
    return;
  }
  if (lines.length > 0) io.say(lines.map((line) => `${line}\n`).join("") + "\n");
  if (format === "md") io.write(markdownTable(columns, rows));
  else if (!io.isTerminal("stdout")) io.write(plainTable(columns, rows));
  else io.write(await terminalTable(columns, rows, io.width(), io.palette("stdout")));
  if (!isAll) io.say("\nall other flags have their defaults: -v shows them\n");
}
