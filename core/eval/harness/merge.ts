/** Puts the folders of all shards together, as if a single run had made them; needs neither model nor data. */
import { join } from "node:path";
import { DataError } from "../../base/errors.ts";
import {
  isObject,
  type JsonObject,
  readJsonObject,
  readRegularText,
  statIfExists,
} from "../../base/files.ts";
import {
  CONFIG,
  differences,
  parseSamples,
  parseScores,
  resultList,
  RESULTS,
  SAMPLES,
  SCORES,
} from "./eval_folder.ts";
import type { LeftOut } from "./prepare.ts";
import type { DocumentScore, TaskFacts } from "./results.ts";
import { requireFields, type Sample } from "./samples.ts";

/** Rows by task. */
type RowCounts = Readonly<Record<string, number>>;

const SAME_FLAGS = {
  hints: ["evaluate every shard with the same flags except --shard and --out"],
};

const RESUME = { hints: ["run its command again with --resume"] };

/** One shard's folder. */
interface Part {
  readonly path: string;
  readonly identity: JsonObject;
  readonly part: number;
  readonly of: number;
  readonly rows: RowCounts;
  readonly samples: readonly Sample[];
  readonly scores: readonly DocumentScore[];
  readonly facts: readonly TaskFacts[];
  readonly model: string;
  readonly device: string;
  readonly preset: string | undefined;
  readonly leftOut: readonly LeftOut[];
}

/** The folders of all shards as one. */
export type MergedParts = Omit<Part, "path" | "part" | "of">;

/**
 * Reads the folders of all shards: samples and scores in the order of a single run.
 * @throws {DataError} when a shard is missing, unfinished, or of another evaluation
 */
export async function mergeParts(paths: readonly string[]): Promise<MergedParts> {
  const parts = await Promise.all(paths.map(readPart));
  requireWhole(parts);
  const rows = sumRows(parts);
  for (const part of parts) requireRows(part, rows);
  const [first] = parts as [Part, ...Part[]];
  const names = Object.keys(rows);
  const order = new Map(names.map((task, i) => [task, i]));
  // A shard without rows of a task knows nothing of it.
  const facts = new Map(parts.flatMap((part) => part.facts.map((fact) => [fact.task, fact])));
  const leftOut = new Map(parts.flatMap((part) => part.leftOut.map((one) => [one.task, one])));
  const sorted = <T extends { task: string; doc_id: number | string; sample?: number }>(
    lists: readonly (readonly T[])[],
  ) =>
    lists.flat().sort((a, b) =>
      order.get(a.task)! - order.get(b.task)! || Number(a.doc_id) - Number(b.doc_id) ||
      (a.sample ?? 0) - (b.sample ?? 0)
    );
  return {
    ...first,
    identity: { ...first.identity, rows, shard: null },
    samples: sorted(parts.map(({ samples }) => samples)),
    scores: sorted(parts.map(({ scores }) => scores)),
    facts: names.flatMap((task) => facts.get(task) ?? []),
    leftOut: [...leftOut.values()],
  };
}

async function readPart(path: string): Promise<Part> {
  const samples = join(path, SAMPLES);
  const { schema: _, ...identity } = await readJsonObject(join(path, CONFIG));
  const [part, of] = String(identity.shard ?? "1/1").split("/").map(Number) as [number, number];
  if (!await statIfExists(join(path, RESULTS))) {
    throw new DataError(`"${path}" is not a finished shard: it lacks ${RESULTS}`, RESUME);
  }
  const { results, device, config } = await readJsonObject(join(path, RESULTS));
  if (identity.rows === undefined) {
    throw new DataError(`"${path}" is not a shard: it holds the scores of samples alone`);
  }
  const fields = { tasks: "an object", rows: "an object of counts", shard: "I/N or null" } as const;
  const { rows } = requireFields<Pick<Part, "rows">>(identity, fields, `"${join(path, CONFIG)}"`);
  const scores = parseScores(await readRegularText(join(path, SCORES)), join(path, SCORES));
  const name = `"${join(path, RESULTS)}"`;
  const facts = resultList<TaskFacts>(results, "tasks", name);
  const { model, left_out = [] } = results as JsonObject;
  return {
    path,
    identity,
    part,
    of,
    rows,
    // A shard without rows has no such file.
    samples: scores.length === 0 ? [] : parseSamples(await readRegularText(samples), samples),
    scores,
    facts,
    model: String(model),
    device: String(device),
    preset: isObject(config) && typeof config.preset === "string" ? config.preset : undefined,
    leftOut: resultList<LeftOut>({ left_out }, "left_out", name),
  };
}

function requireWhole(parts: readonly Part[]): void {
  const [first] = parts as [Part, ...Part[]];
  for (const { path, identity } of parts) {
    const same = { ...identity, shard: first.identity.shard, rows: first.identity.rows };
    const different = differences(same as JsonObject, first.identity);
    if (different.length > 0) {
      throw new DataError(
        `"${path}" and "${first.path}" differ in ${different.join(", ")}`,
        SAME_FLAGS,
      );
    }
  }
  const { of } = first;
  const numbers = parts.map(({ part }) => part).sort((a, b) => a - b);
  const isWhole = parts.every((one) => one.of === of) && numbers.length === of &&
    numbers.every((part, i) => part === i + 1);
  if (isWhole) return;
  const found = parts.map(({ part, of }) => `${part}/${of}`).join(", ");
  throw new DataError(
    `the shards are incomplete: found ${found}, expected 1/${of} to ${of}/${of}`,
  );
}

/** Throws unless a part has its share of all rows, and its files hold them. */
function requireRows(one: Part, all: RowCounts): void {
  const { path, part, of, rows, scores, samples, facts } = one;
  for (const task of new Set([...Object.keys(all), ...scores.map(({ task }) => task)])) {
    const count = rows[task] ?? 0, total = all[task] ?? 0;
    const share = Math.ceil((total - part + 1) / of);
    if (count !== share) {
      throw new DataError(
        `"${path}" has ${count} of ${total} rows of ${task}, expected ${share} in shard ${part}/${of}`,
        SAME_FLAGS,
      );
    }
    const idsIn = (lines: readonly (DocumentScore | Sample)[]) =>
      lines.filter((line) => line.task === task).map(({ doc_id }) => doc_id);
    const counts = [
      [SCORES, new Set(idsIn(scores)).size],
      [SCORES, idsIn(scores).length],
      [SAMPLES, new Set(idsIn(samples)).size],
      [RESULTS, facts.some((fact) => fact.task === task) ? count : 0],
    ] as const;
    const [file, found] = counts.find(([, found]) => found !== count) ?? [];
    if (file === undefined) continue;
    const problem = `found ${found} rows of ${task}, expected ${count}`;
    throw new DataError(`"${join(path, file)}" is damaged: ${problem}`, RESUME);
  }
}

function sumRows(parts: readonly Part[]): RowCounts {
  const total: Record<string, number> = {};
  for (const { rows } of parts) {
    for (const [task, count] of Object.entries(rows)) total[task] = (total[task] ?? 0) + count;
  }
  return total;
}
