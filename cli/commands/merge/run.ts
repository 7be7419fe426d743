/** Carries out `parscale merge`: proves that the parts are all there, then deals their rows back. */
import { DataError, UsageError } from "../../../core/base/errors.ts";
import { isObject, type JsonObject, readJsonObject } from "../../../core/base/files.ts";
import type { ValuesOf } from "../../framework/command.ts";
import { type ConfigValue, snakeCase } from "../../framework/table.ts";
import { partOf, type Shard } from "../../input/shard.ts";
import type { Invocation } from "../../output/document.ts";
import type { Io } from "../../output/io.ts";
import { Report, type ReportOptions } from "../../output/report.ts";
import { FREE_FLAGS, rowsIn } from "../../output/row_writer.ts";
import type { Row } from "../../output/table.ts";
import { generateColumns } from "../generate/columns.ts";
import { scoreColumns } from "../score/columns.ts";
import type { command } from "./flags.ts";

/** The commands whose rows are dealt to parts: how many at a time, and the columns of their tables. */
const COMMANDS = new Map([
  ["generate", {
    unitOf: (): unknown => 1,
    columnsOf: generateColumns,
  }],
  ["score", {
    unitOf: ({ batch }: JsonObject) => batch,
    columnsOf: scoreColumns,
  }],
]);

/** Keys of a config that differ from part to part without a difference in the rows. */
const FREE = new Set(["shard", ...FREE_FLAGS.map(snakeCase)]);

/** One document. */
interface Part extends Shard {
  readonly path: string;
  readonly document: JsonObject;
  readonly command: string;
  readonly config: JsonObject;
  readonly columns: ReportOptions["columns"];
  readonly rows: readonly Row[];
  /** Rows in a block; parts took blocks in turn. */
  readonly unit: number;
}

/** Reads the documents of all parts; returns them in order of their numbers. */
export async function plan(
  { arguments: paths }: ValuesOf<typeof command>,
): Promise<readonly [Part, ...Part[]]> {
  if (paths.length === 0) {
    throw new UsageError("`merge` needs the documents of all parts", {
      hints: ["parscale merge scores-1.json scores-2.json --jsonl -o scores.jsonl"],
    });
  }
  return requireWhole(await Promise.all(paths.map(readPart)));
}

/** Merges documents; the number is the exit code, 1 when rows failed. */
export async function run(
  parts: readonly [Part, ...Part[]],
  io: Io,
  invocation: Invocation,
): Promise<number> {
  const [first] = parts;
  const { schema, seed, device } = first.document;
  const config = { ...first.config, shard: null } as Record<string, ConfigValue>;
  using report = new Report(io, { ...invocation, command: first.command, config }, {
    schema: String(schema),
    seed: typeof seed === "number" ? seed : undefined,
    device: String(device),
    columns: first.columns,
  });
  let failed = false;
  for (const row of dealtBack(parts, first.unit)) {
    failed ||= "error" in row;
    for (const one of rowsIn(invocation.format, row)) report.row(one);
  }
  await report.finish();
  return failed ? 1 : 0;
}

async function readPart(path: string): Promise<Part> {
  if (path === "-") throw new UsageError("`merge` reads files, not stdin");
  const document = await readJsonObject(path);
  const { config, results: rows } = document, command = String(document.command);
  const known = COMMANDS.get(command);
  if (known === undefined || !isObject(config)) {
    throw new DataError(`"${path}" is not a document of ${[...COMMANDS.keys()].join(" or ")}`, {
      hints: ["make the parts with --shard and --json"],
    });
  }
  if (typeof config.shard !== "string" || !Array.isArray(rows)) {
    throw new DataError(`"${path}" is not a part: it was made without \`--shard\``);
  }
  const shard = partOf(config.shard), unit = known.unitOf(config);
  if (shard === undefined || !rows.every(isObject) || !Number.isInteger(unit) || Number(unit) < 1) {
    throw new DataError(`"${path}" is damaged: its rows, "shard" or "batch" cannot be read`);
  }
  const columns = known.columnsOf(config);
  return { path, document, command, config, columns, rows, unit: Number(unit), ...shard };
}

/** The parts in order, of which there must be all. */
function requireWhole(found: readonly Part[]): readonly [Part, ...Part[]] {
  const parts = found.toSorted((a, b) => a.part - b.part) as [Part, ...Part[]];
  const [first] = parts;
  const identity = ({ document, command, config }: Part) => {
    const { schema, version, seed, device, input_sha256 } = document;
    const flags = Object.entries(config).filter(([name]) => !FREE.has(name)).sort();
    return { schema, version, command, seed, device, input_sha256, flags };
  };
  for (const part of parts) {
    const [a, b] = [identity(first), identity(part)].map((each) => JSON.stringify(each));
    if (part.of === first.of && a === b) continue;
    throw new DataError(`"${part.path}" and "${first.path}" are parts of different runs`, {
      hints: ["parts have the same flags, input and version"],
    });
  }
  const there = new Set(parts.map(({ part }) => part));
  const missing = Array.from({ length: first.of }, (_, i) => i + 1).filter((i) => !there.has(i));
  if (missing.length > 0) {
    throw new DataError(`of ${first.of} parts these are missing: ${missing.join(", ")}`, {
      hints: [`run the command again with --shard ${missing[0]}/${first.of}`],
    });
  }
  if (parts.length > first.of) {
    const twice = parts.find(({ part }, i) => parts[i + 1]?.part === part)!;
    throw new DataError(`part ${twice.part} is there twice: "${twice.path}"`);
  }
  return parts;
}

/** Rows in the order of the input, `unit` at a time from every part in turn. */
function* dealtBack(parts: readonly Part[], unit: number): Generator<Row> {
  const total = parts.reduce((sum, { rows }) => sum + rows.length, 0);
  const taken = parts.map(() => 0);
  for (let done = 0, turn = 0; done < total; turn++) {
    const at = turn % parts.length, part = parts[at]!;
    const expected = Math.min(unit, total - done);
    const rows = part.rows.slice(taken[at], taken[at]! + expected);
    if (rows.length < expected) {
      throw new DataError(`"${part.path}" has ${part.rows.length} rows, too few for its part`, {
        hints: ["all parts must have read the same input with the same `--batch`"],
      });
    }
    yield* rows;
    taken[at]! += expected;
    done += expected;
  }
}
