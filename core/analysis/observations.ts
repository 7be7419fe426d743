/**
 * Observed losses from files: one row per trained model with its parameters, streams and loss.
 *
 * CSV, JSON and JSON lines are told apart by the first character. Column names are `n_params`,
 * `streams`, `loss`; the letters N and P are taken too.
 */
import { csvRows } from "../base/csv.ts";
import { DataError } from "../base/errors.ts";
import { parseJson } from "../base/files.ts";
import type { Observation } from "./law.ts";

/** Names a column may have, the first of them ours. */
const NAMES: Readonly<Record<keyof Observation, readonly string[]>> = {
  n: ["n_params", "N", "params"],
  p: ["streams", "P"],
  loss: ["loss", "eval_loss"],
};

/** Reads all observations of a text; `name` is the file's in messages. */
export function parseObservations(text: string, name: string): Observation[] {
  const rows = rowsOf(text.trim(), name);
  const observations = Array.from(rows, (row, i) => toObservation(row, `row ${i + 1} of ${name}`));
  if (observations.length === 0) throw new DataError(`${name} has no rows`);
  requireDistinct(observations, name);
  return observations;
}

/**
 * Same N and P twice is a slip of copying unless the losses say that these were two runs.
 * @throws {DataError} when two rows are equal
 */
export function requireDistinct(observations: readonly Observation[], name: string): void {
  const seen = new Map<string, number>();
  for (const [i, { n, p, loss }] of observations.entries()) {
    const key = `${n} ${p} ${loss}`;
    const first = seen.get(key);
    if (first !== undefined) {
      throw new DataError(`row ${i + 1} of ${name} repeats row ${first + 1}`, {
        hints: ["remove one of them"],
      });
    }
    seen.set(key, i);
  }
}

type Row = Readonly<Record<string, unknown>>;

function rowsOf(text: string, name: string): Iterable<Row> {
  if (text.startsWith("[")) return parseJson(text, name) as Row[];
  if (!text.startsWith("{")) return tableRows(text, name);
  const lines = text.split("\n").filter((line) => line.trim() !== "");
  if (lines.length > 1 && lines[0]!.trim().endsWith("}")) {
    return lines.map((line, i) => parseJson(line, `row ${i + 1} of ${name}`) as Row);
  }
  const whole = parseJson(text, name) as Row;
  const rows = whole.observations ?? whole.results ?? [whole];
  return Array.isArray(rows) ? rows : [whole];
}

function* tableRows(text: string, name: string): Generator<Row> {
  const [head = ""] = text.split("\n", 1);
  const separator = [",", ";", "\t"].find((one) => head.includes(one)) ?? ",";
  const names: string[] = [];
  let at = 0;
  for (const cells of csvRows(text, name, { separator, trimsStart: separator !== "\t" })) {
    if (at++ === 0) names.push(...cells.map((cell) => cell.trim()));
    else if (cells.length !== names.length) {
      const wrong = `row ${at - 1} has ${cells.length} cells, expected ${names.length}`;
      throw new DataError(`${name} is not valid CSV: ${wrong}`);
    } else yield Object.fromEntries(names.map((name, i) => [name, toNumber(cells[i]!.trim())]));
  }
}

function toNumber(cell: string): unknown {
  if (cell === "") return undefined;
  const number = Number(cell);
  return Number.isNaN(number) ? cell : number;
}

function toObservation(row: Row, at: string): Observation {
  if (typeof row !== "object" || row === null) {
    throw new DataError(`${at} is not an object: ${JSON.stringify(row)}`);
  }
  const value = (field: keyof Observation) => {
    const column = NAMES[field].find((name) => row[name] !== undefined && row[name] !== null);
    const found = column === undefined ? undefined : row[column];
    const whole = field !== "p" || Number.isInteger(found);
    if (typeof found === "number" && Number.isFinite(found) && found > 0 && whole) return found;
    const name = NAMES[field][0];
    const wanted = `a positive ${field === "p" ? "whole " : ""}number`;
    if (column === undefined) {
      throw new DataError(`${at} has no ${name}, expected ${wanted}`, {
        hints: [
          "columns are n_params, streams and loss, in CSV between commas, semicolons or tabs",
        ],
      });
    }
    const shown = typeof found === "number" ? found : JSON.stringify(found);
    const hasComma = typeof found === "string" && /^\d+,\d+$/.test(found);
    throw new DataError(`${at} has ${name} ${shown}, expected ${wanted}`, {
      hints: hasComma ? [`write ${found.replace(",", ".")} or ${found.replace(",", "")}`] : [],
    });
  };
  return { n: value("n"), p: value("p"), loss: value("loss") };
}
