/** Puts the folders of all shards together, as if a single run had made them; needs neither model nor data. */
import { join } from "node:path";
import { DataError } from "../../base/errors.ts";
import { isObject, type JsonObject, readJsonObject, readRegularText } from "../../base/files.ts";
import {
  CONFIG,
  differences,
  parseSamples,
  parseScores,
  RESULTS,
  SAMPLES,
  SCORES,
} from "./eval_folder.ts";
import type { LeftOut } from "./prepare.ts";
import type { DocumentScore, TaskFacts } from "./results.ts";
import type { Sample } from "./samples.ts";

/** One shard's folder. */
interface Part {
  readonly path: string;
  readonly identity: JsonObject;
  readonly part: number;
  readonly of: number;
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
  const [first] = parts as [Part, ...Part[]];
  const names = Object.keys(first.identity.tasks as JsonObject);
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
    identity: { ...first.identity, rows: sumRows(parts), shard: null },
    samples: sorted(parts.map(({ samples }) => samples)),
    scores: sorted(parts.map(({ scores }) => scores)),
    facts: names.flatMap((task) => facts.get(task) ?? []),
    leftOut: [...leftOut.values()],
  };
}

async function readPart(path: string): Promise<Part> {
  const { schema: _, ...identity } = await readJsonObject(join(path, CONFIG));
  const [part, of] = String(identity.shard ?? "1/1").split("/").map(Number) as [number, number];
  let document: JsonObject;
  try {
    document = await readJsonObject(join(path, RESULTS));
  } catch (cause) {
    throw new DataError(`"${path}" is no finished shard: it has no ${RESULTS}`, {
      cause,
      hints: ["run its command again with --resume"],
    });
  }
  const { results, device, config } = document;
  if (!isObject(identity.rows)) {
    throw new DataError(`"${path}" is no shard: it holds the scores of samples alone`);
  }
  const scores = parseScores(await readRegularText(join(path, SCORES)));
  if (!isObject(results) || !Array.isArray(results.tasks)) {
    throw new DataError(
      `"${path}" is no finished shard: its ${RESULTS} holds no tasks`,
      { hints: ["run its command again"] },
    );
  }
  return {
    path,
    identity,
    part,
    of,
    samples: scores.length === 0 ? [] : await readSamples(join(path, SAMPLES)),
    scores,
    facts: results.tasks as TaskFacts[],
    model: String(results.model),
    device: String(device),
    preset: isObject(config) && typeof config.preset === "string" ? config.preset : undefined,
    leftOut: Array.isArray(results.left_out) ? results.left_out as LeftOut[] : [],
  };
}

/** A shard without rows has no such file. */
async function readSamples(path: string): Promise<Sample[]> {
  return parseSamples(await readRegularText(path), path);
}

function requireWhole(parts: readonly Part[]): void {
  const [first] = parts as [Part, ...Part[]];
  for (const { path, identity } of parts) {
    const same = { ...identity, shard: first.identity.shard, rows: first.identity.rows };
    const different = differences(same as JsonObject, first.identity);
    if (different.length > 0) {
      throw new DataError(
        `"${path}" and "${first.path}" differ in ${different.join(", ")}`,
        { hints: ["evaluate every shard with the same flags except --shard and --out"] },
      );
    }
  }
  const { of } = first;
  const numbers = parts.map(({ part }) => part).sort((a, b) => a - b);
  const isWhole = parts.every((one) => one.of === of) && numbers.length === of &&
    numbers.every((part, i) => part === i + 1);
  if (isWhole) return;
  throw new DataError(
    `the shards are incomplete: found ${
      parts.map(({ part, of }) => `${part}/${of}`).join(", ")
    }, expected 1/${of} to ${of}/${of}`,
  );
}

function sumRows(parts: readonly Part[]): JsonObject {
  const total: Record<string, number> = {};
  for (const { identity } of parts) {
    for (const [task, rows] of Object.entries(identity.rows as JsonObject)) {
      total[task] = (total[task] ?? 0) + Number(rows);
    }
  }
  return total;
}
