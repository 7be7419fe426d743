/**
 * `--compare`: rows timed now against rows of an earlier file, median by median. Other work on the machine
 * slows some rows evenly, so what can be told apart is bounded by the spread of the other rows, too: by
 * the upper quartile of all. Partners need not be of the same model or machine, since neither has a name
 * that lasts; that is for the user to know.
 */
import { DataError } from "../../../core/base/errors.ts";
import { isObject, jsonValue } from "../../../core/base/files.ts";
import { quantileOf } from "../../../core/base/statistics.ts";
import { type InputRow, readRows, rowError } from "../../input/rows.ts";
import type { Invocation } from "../../output/document.ts";
import { exitCode } from "../../output/exit_codes.ts";
import { inputName, type Io } from "../../output/io.ts";
import { reportRows } from "../../output/report.ts";
import type { Column } from "../../output/table.ts";
import { counted } from "../../output/units.ts";
import type { ComparisonPlan } from "./plan.ts";

/** Layout of timed rows. */
export const SCHEMA = "parscale.bench/1";

/** Fields that partners agree in. */
const KEYS = [
  "what",
  "train_params",
  "streams",
  "batch",
  "context",
  "prompt",
  "device",
  "dtype",
  "weights",
] as const;

/** A row as far as comparing goes. */
interface Timing {
  readonly key: Readonly<Record<typeof KEYS[number], unknown>>;
  readonly medianMs: number;
  /** Fastest sample, which other work on the machine disturbs least. */
  readonly leastMs: number;
  /** Distance between the quartiles of the samples over their median. */
  readonly spread: number;
}

const TITLES: Readonly<Record<string, string>> = { streams: "P", train_params: "trains" };

const COLUMNS: readonly Column[] = [
  ...KEYS.map((key) => ({ key, title: TITLES[key] ?? key })),
  { key: "against_ms", title: "against ms", digits: 2 },
  { key: "median_ms", title: "ms", digits: 2 },
  { key: "ratio", digits: 3 },
  { key: "result" },
];

/** Columns of a table; only those with rows of training name what is trained. */
export function shownColumns(columns: readonly Column[], trains: boolean): readonly Column[] {
  return trains ? columns : columns.filter(({ key }) => key !== "train_params");
}

/** Compares two files; the number is the exit code. */
export async function compareTimings(
  paths: ComparisonPlan,
  io: Io,
  invocation: Invocation,
): Promise<number> {
  const { tolerance } = paths;
  // The earlier file first: what is wrong with it shows before the pipe has run for minutes.
  const before = await readTimings(paths.against, io);
  const now = await readTimings(paths.compare, io);
  const spreads = [...now, ...before].map(({ spread }) => spread).sort((a, b) => a - b);
  const noise = quantileOf(spreads, 0.75);
  const rows = pair(now, before, Math.max(tolerance, noise));
  const paired = rows.filter(({ ratio }) => ratio !== null);
  if (paired.length === 0) {
    throw new DataError(
      `${inputName(paths.compare)} and ${inputName(paths.against)} have no row in common`,
      { hints: [`rows are paired by ${KEYS.join(", ")}`] },
    );
  }
  const slower = paired.filter(({ result }) => result === "slower").length;
  const isBusy = noise > tolerance;
  const allowed = isBusy ? Math.ceil(noise * 100) : Number((tolerance * 100).toPrecision(6));
  const remark = () =>
    `${slower} of ${counted(paired.length, "pair")} slower by more than ${allowed}%` +
    (isBusy ? ", the spread of the samples" : "");
  const shown = shownColumns(COLUMNS, rows.some((row) => row.train_params !== null));
  const options = { schema: "parscale.bench_compare/2", shown };
  await reportRows(io, invocation, options, rows, remark);
  const alone = rows.length - paired.length;
  if (alone > 0) io.warn(`${counted(alone, "row")} without a partner decided nothing`);
  return exitCode(slower > 0 ? "negative" : "done");
}

/** Rows of now in their order, then those that only the earlier file has. */
function pair(now: readonly Timing[], before: readonly Timing[], noise: number) {
  const partners = new Map(before.map((timing) => [keyOf(timing), timing]));
  const rows = now.map((timing) => {
    const partner = partners.get(keyOf(timing));
    partners.delete(keyOf(timing));
    return rowOf(timing, partner, noise);
  });
  return [...rows, ...partners.values().map((timing) => rowOf(undefined, timing, noise))];
}

function rowOf(now: Timing | undefined, before: Timing | undefined, noise: number) {
  const { key } = (now ?? before)!;
  const against_ms = before?.medianMs ?? null, median_ms = now?.medianMs ?? null;
  const ratio = now && before ? now.medianMs / before.medianMs : null;
  return { ...key, against_ms, median_ms, ratio, result: resultOf(now, before, noise) };
}

function resultOf(now: Timing | undefined, before: Timing | undefined, noise: number) {
  if (now === undefined) return "gone";
  if (before === undefined) return "new";
  if (isSlower(now, before, noise)) return "slower";
  return isSlower(before, now, noise) ? "faster" : "same";
}

/** In median and in fastest sample, by more than `noise` and by more than the samples of either spread. */
function isSlower(one: Timing, other: Timing, noise: number): boolean {
  const least = 1 + Math.max(noise, one.spread, other.spread);
  return one.medianMs > least * other.medianMs && one.leastMs > least * other.leastMs;
}

function keyOf({ key }: Timing): string {
  return JSON.stringify(KEYS.map((name) => key[name]));
}

/** Reads a document of --json, or the lines of --jsonl. */
export async function readTimings(path: string, io: Io): Promise<Timing[]> {
  const text = await io.readText(path);
  const name = inputName(path);
  const rows = documentRows(text, name) ?? await Array.fromAsync(readRows(text.split("\n"), name));
  const timings = rows.map((row) => timingOf(row, name));
  if (timings.length === 0) {
    throw new DataError(`${name} holds no rows of \`bench\``, {
      hints: ["write them with `parscale bench --model … --jsonl -o FILE`"],
    });
  }
  const seen = new Set<string>();
  for (const timing of timings) {
    if (seen.has(keyOf(timing))) {
      throw new DataError(
        `${name} holds two rows with ${describe(timing)}`,
      );
    }
    seen.add(keyOf(timing));
  }
  return timings;
}

function describe({ key }: Timing): string {
  return KEYS.filter((name) => key[name] !== null).map((name) => `${name} ${key[name]}`).join(", ");
}

/** The rows of a document of --json; undefined for other text. */
function documentRows(text: string, name: string): InputRow[] | undefined {
  const value = jsonValue(text);
  if (!isObject(value) || value.schema === undefined) return undefined;
  const { schema, results } = value;
  if (schema === SCHEMA && Array.isArray(results)) {
    return results.map((fields, id) => ({ id, line: 1, fields }));
  }
  throw new DataError(`${name} has schema ${JSON.stringify(schema)}, expected "${SCHEMA}"`);
}

function timingOf({ fields: row, line }: InputRow, name: string): Timing {
  if (!isObject(row)) throw rowError(name, line, JSON.stringify(row), "a row of parscale bench");
  const missing = KEYS.find((key) => !(key in row));
  if (missing !== undefined) {
    throw rowError(name, line, `no "${missing}"`, "a row of parscale bench");
  }
  const { median_ms: medianMs } = row;
  if (typeof medianMs !== "number" || !(medianMs > 0)) {
    throw rowError(name, line, `median_ms ${JSON.stringify(medianMs)}`, "a positive number");
  }
  const key = Object.fromEntries(KEYS.map((name) => [name, row[name]])) as Timing["key"];
  const { samples_ms: samples, spread_ms: spread } = row;
  const times = Array.isArray(samples) ? samples.filter((ms) => typeof ms === "number") : [];
  return {
    key,
    medianMs,
    leastMs: times.length > 0 ? Math.min(...times) : medianMs,
    spread: typeof spread === "number" ? spread / medianMs : 0,
  };
}
