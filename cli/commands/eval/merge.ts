/**
 * `parscale eval merge`: the folders of all shards become one, as if a single run had made it.
 *
 * Needs neither model nor data: samples and scores are put in order, and means taken anew.
 */
import { join } from "node:path";
import {
  isObject,
  type JsonObject,
  readJsonObject,
  readRegularText,
} from "../../../core/base/files.ts";
import type { DocumentScore } from "../../../core/eval/harness/results.ts";
import type { Sample } from "../../../core/eval/harness/samples.ts";
import { DataError, UsageError } from "../../../core/base/errors.ts";
import type { Invocation } from "../../output/document.ts";
import type { Io } from "../../output/io.ts";
import { parseBounds, shortfalls, type TaskFacts } from "./results.ts";
import { report, verdict } from "./report.ts";
import { parseShard } from "../../input/shard.ts";
import { selectTasks } from "./select.ts";
import type { EvalValues } from "./flags.ts";

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
}

/** Merges the folders given as arguments into --out; the number is the exit code. */
export async function mergeFolders(
  values: EvalValues,
  io: Io,
  invocation: Invocation,
): Promise<number> {
  const [, ...paths] = values.arguments;
  if (paths.length === 0 || values.out === undefined) {
    throw new UsageError(
      `\`eval merge\` needs ${paths.length === 0 ? "the folders of all shards" : "`--out`"}`,
      { hints: ["parscale eval merge part-1 part-2 --out whole"] },
    );
  }
  const parts = await Promise.all(paths.map(readPart));
  await requireWhole(parts);
  const [first] = parts as [Part, ...Part[]];
  const names = first.facts.map(({ task }) => task);
  const bounds = parseBounds(values.failUnder, await selectTasks(names));
  const order = new Map(names.map((name, i) => [name, i]));
  const sorted = <T extends { task: string; doc_id: number | string; sample?: number }>(
    lists: readonly (readonly T[])[],
  ) =>
    lists.flat().sort((a, b) =>
      order.get(a.task)! - order.get(b.task)! || Number(a.doc_id) - Number(b.doc_id) ||
      (a.sample ?? 0) - (b.sample ?? 0)
    );
  const { EvalFolder } = await import("../../../core/eval/harness/eval_folder.ts");
  const rows = sumRows(parts);
  using folder = await EvalFolder.open(
    values.out,
    { ...first.identity, rows, shard: null },
    { overwrite: invocation.overwrite },
  );
  if ((await folder.readSamples()).length > 0) {
    throw new UsageError(`"${values.out}" already holds samples`, {
      hints: ["pass --overwrite, or another --out"],
    });
  }
  for (const sample of sorted(parts.map(({ samples }) => samples))) folder.append(sample);
  const results = await report(first.facts, sorted(parts.map(({ scores }) => scores)), {
    values: { ...values, preset: first.preset },
    io,
    invocation,
    folder,
    model: {
      fingerprint: first.model,
      device: first.device,
      streams: numberOf(first.identity.streams),
      beams: numberOf(first.identity.num_beams),
      quantize: typeof first.identity.quantize === "string" ? first.identity.quantize : null,
    },
  });
  return verdict(shortfalls(bounds, results), io);
}

async function readPart(path: string): Promise<Part> {
  const { CONFIG, parseSamples, parseScores, RESULTS, SAMPLES, SCORES } = await import(
    "../../../core/eval/harness/eval_folder.ts"
  );
  const { schema: _, ...identity } = await readJsonObject(join(path, CONFIG));
  const shard = parseShard(identity.shard === null ? "1/1" : String(identity.shard))!;
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
  if (!isObject(results) || !Array.isArray(results.tasks)) {
    throw new DataError(
      `"${path}" is no finished shard: its ${RESULTS} holds no tasks`,
      { hints: ["run its command again"] },
    );
  }
  return {
    path,
    identity,
    ...shard,
    samples: parseSamples(await readRegularText(join(path, SAMPLES)), join(path, SAMPLES)),
    scores: parseScores(await readRegularText(join(path, SCORES))),
    facts: results.tasks as TaskFacts[],
    model: String(results.model),
    device: String(device),
    preset: isObject(config) && typeof config.preset === "string" ? config.preset : undefined,
  };
}

async function requireWhole(parts: readonly Part[]): Promise<void> {
  const { differences } = await import("../../../core/eval/harness/eval_folder.ts");
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

function numberOf(value: unknown): number | null {
  return typeof value === "number" ? value : null;
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
