/**
 * The output of `--dry-run`: every value with its origin, and what the command would do.
 *
 * The JSON form is a document whose `config` member makes it a valid `--config`.
 */
import type { FlagTable } from "../framework/table.ts";
import { formatValue } from "../framework/values.ts";
import { buildDocument, type Invocation, toJson } from "./document.ts";
import type { Io } from "./io.ts";
import { csvLine, markdownTable, plainTable } from "./table.ts";

/** Prints the plan on stdout, also when the result itself would go to a file: nothing is touched. */
export function showPlan(
  io: Io,
  invocation: Invocation,
  table: FlagTable,
  plan: readonly string[],
): void {
  const { config, origins, format } = invocation;
  if (format === "json" || format === "jsonl") {
    const document = buildDocument(invocation, { schema: "parscale.plan/1" }, 0, { plan });
    io.write(toJson({ ...document, origins }, format === "json" ? 2 : 0) + "\n");
    return;
  }
  const rows = Object.entries(config).map(([name, value]) => ({
    flag: `--${name}`,
    value: value === null ? null : formatValue(table[name]!, value),
    origin: origins[name],
  }));
  const columns = ["flag", "value", "origin"].map((key) => ({ key }));
  if (format === "csv") {
    const records = rows.map((row) => csvLine([row.flag, row.value, row.origin]));
    io.write(csvLine(columns.map(({ key }) => key)) + records.join(""));
    return;
  }
  io.write(format === "md" ? markdownTable(columns, rows) : plainTable(columns, rows));
  if (plan.length > 0) io.write("\n" + plan.map((line) => `${line}\n`).join(""));
}
