/**
 * The folder of an evaluation.
 *
 *     config.json     what was asked: tasks, shots, data and model, by which a rerun is recognised
 *     samples.jsonl   one line per answer, appended as they come
 *     scores.jsonl    one line per row: its metrics; while programs are run, those done so far
 *     passing.jsonl   the answers that passed, as rows for `train`, if asked for
 *     stats.jsonl     time and memory of every run so far, the last line of a run counts
 *     results.json    means with standard errors; there once all is scored
 *     results_*.json, samples_*_*.jsonl   the same for readers of lm-evaluation-harness, if asked for
 *     .lock           held by the process at work
 *
 * Whatever ends a run, the lines written before stay, and the next run of the same evaluation continues
 * from them. A line that was cut off is removed first.
 */
import { join } from "node:path";
import {
  differences,
  type JsonObject,
  readJsonObject,
  show,
  statIfExists,
} from "../../base/files.ts";
import { UsageError } from "../../base/errors.ts";
import { removeIfExists } from "../../storage/leftovers.ts";
import { HARNESS_FILES, HIDDEN } from "../../storage/our_files.ts";
import { RowFile } from "../../storage/row_file.ts";
import { jsonText, writeLines } from "../../storage/write_file.ts";
import { LOCK_FILE, lockFolder, requireFreeTarget } from "../../storage/write_folder.ts";
import type { DocumentScore } from "./results.ts";
import {
  type Fields,
  parseSampleLine,
  requireFields,
  type Sample,
  SampleReader,
} from "./samples.ts";

/** Layout of `config.json`. */
const SCHEMA = "parscale.eval-run/2";

/** Files of the folder. */
export const CONFIG = "config.json",
  SAMPLES = "samples.jsonl",
  SCORES = "scores.jsonl",
  PASSING = "passing.jsonl",
  STATS = "stats.jsonl",
  RESULTS = "results.json";

/** Time and tokens of one run of the evaluation so far. */
export interface RunStats {
  /** When the run began, which tells it from others. */
  readonly run: string;
  readonly seconds: number;
  readonly peak_rss_bytes: number | null;
}

/** A file and its lines, which may be made as they are written. */
export interface TextFile {
  readonly name: string;
  readonly lines: Iterable<string> | AsyncIterable<string>;
}

/** A folder in use by this process. */
export class EvalFolder implements Disposable {
  readonly #samples: RowFile;
  readonly #scores: RowFile;
  readonly #stats: RowFile;

  /** True if an earlier run had finished. */
  isComplete = false;

  private constructor(readonly path: string, private readonly lock: Deno.FsFile) {
    this.#samples = new RowFile(join(path, SAMPLES));
    this.#scores = new RowFile(join(path, SCORES));
    this.#stats = new RowFile(join(path, STATS));
  }

  /**
   * Begins the evaluation that `identity` describes, or continues with it if there are answers.
   * @throws {UsageError} for a folder of another evaluation or with other files, unless it may be
   *   overwritten
   */
  static async open(
    path: string,
    identity: JsonObject,
    options: FolderOptions,
  ): Promise<EvalFolder> {
    const { overwrite = false } = options;
    const begun = await requireUsable(path, options);
    const folder = new EvalFolder(path, lockFolder(path));
    try {
      if (begun && !overwrite && await folder.#holdsAny()) {
        await folder.#requireSame(identity);
        folder.isComplete = await statIfExists(join(path, RESULTS)) !== undefined;
      } else {
        for (const name of [SAMPLES, SCORES, PASSING, STATS, RESULTS]) {
          await removeIfExists(join(path, name));
        }
        await folder.#removeHarnessFiles();
        await folder.#replace(CONFIG, [jsonText({ schema: SCHEMA, ...identity })]);
      }
      return folder;
    } catch (error) {
      folder[Symbol.dispose]();
      throw error;
    }
  }

  /** Samples that are there, without a last line that was cut off. */
  async readSamples(): Promise<Sample[]> {
    return parseSamples(await this.#samples.read(), this.#samples.path);
  }

  /** Scores that are there, likewise. */
  async readScores(): Promise<DocumentScore[]> {
    return parseScores(await this.#scores.read(), this.#scores.path);
  }

  /** Returns the statistics of earlier runs: the last line of each. */
  async readStats(): Promise<RunStats[]> {
    const text = await this.#stats.read();
    const runs = recordsOf<RunStats>(text, this.#stats.path, STATS_FIELDS);
    return [...new Map(runs.map((stats) => [stats.run, stats])).values()];
  }

  /** Notes what this run took so far. */
  appendStats(stats: RunStats): void {
    this.#stats.append(JSON.stringify(stats) + "\n");
  }

  /** Adds a sample; it is out when this returns. */
  append(sample: Sample): void {
    this.#samples.append(JSON.stringify(sample) + "\n");
  }

  /** Adds a score that took long; all scores are written anew at the end. */
  appendScore(score: DocumentScore): void {
    this.#scores.append(JSON.stringify(score) + "\n");
  }

  /** Writes the rows of answers that passed, in place of those of an earlier run. */
  async writePassing(lines: readonly string[]): Promise<void> {
    await this.#replace(PASSING, lines);
  }

  /** Writes files in the layout of the harness, in place of those of an earlier run. */
  async writeHarnessFiles(files: readonly TextFile[]): Promise<void> {
    await this.#removeHarnessFiles();
    for (const { name, lines } of files) await this.#replace(name, lines);
  }

  /**
   * Writes the metrics of all rows, and the results last: a folder with results is complete, and one that
   * was with the same metrics stays as it is.
   */
  async finish(scores: readonly unknown[], results: unknown): Promise<void> {
    const lines = scores.map((score) => JSON.stringify(score) + "\n");
    if (this.isComplete && await this.#scores.read() === lines.join("")) return;
    await this.#replace(SCORES, lines);
    await this.#replace(RESULTS, [jsonText(results)]);
  }

  [Symbol.dispose](): void {
    for (const file of [this.#samples, this.#scores, this.#stats, this.lock]) {
      file[Symbol.dispose]();
    }
  }

  async #replace(name: string, lines: TextFile["lines"]): Promise<void> {
    await writeLines(join(this.path, name), lines);
  }

  async #removeHarnessFiles(): Promise<void> {
    for await (const { name } of Deno.readDir(this.path)) {
      if (HARNESS_FILES.test(name)) await removeIfExists(join(this.path, name));
    }
  }

  /** Returns whether an earlier run left more than what was asked for. */
  async #holdsAny(): Promise<boolean> {
    const kept = [SAMPLES, SCORES, RESULTS].map((name) => statIfExists(join(this.path, name)));
    return (await Promise.all(kept)).some((info) => Number(info?.size) > 0);
  }

  async #requireSame(identity: JsonObject): Promise<void> {
    const { schema, ...found } = await readJsonObject(join(this.path, CONFIG));
    if (schema !== SCHEMA) {
      throw new UsageError(
        `"${this.path}" was written by another version: its schema is ${show(schema)}`,
        {
          hints: [
            `score its answers with \`parscale eval --score ${join(this.path, SAMPLES)}\``,
            "or pass `--overwrite` to evaluate again",
          ],
        },
      );
    }
    const different = differences(found, identity);
    if (different.length === 0) return;
    throw new UsageError(
      `"${this.path}" holds an evaluation that differs in ${different.join(", ")}`,
      { hints: ["pass `--overwrite` to replace it, or choose another `--out`"] },
    );
  }
}

/** Treatment of a folder that is there. */
interface FolderOptions {
  readonly overwrite?: boolean;
}

/**
 * Checks that a folder can take an evaluation; returns whether it holds one.
 * @throws {UsageError} for a folder with other files
 */
export async function requireUsable(
  path: string,
  { overwrite = false }: FolderOptions,
): Promise<boolean> {
  const begun = await statIfExists(join(path, CONFIG)) !== undefined;
  if (begun && !overwrite) return true;
  await requireFreeTarget(path, overwrite ? "evaluation" : undefined, {
    ignores: (name) => name === LOCK_FILE || HIDDEN.test(name),
    problem: "already exists and is not an evaluation",
    hint: "choose another `--out`",
  });
  return begun;
}

const STATS_FIELDS = {
  run: "text",
  seconds: "a number",
  peak_rss_bytes: "a number or null",
} as const;

const SCORE_FIELDS = {
  task: "text",
  doc_id: "an integer of at least 0",
  metrics: "an object of numbers and lists of numbers",
} as const;

/** Scores of a file of our own. */
export function parseScores(text: string, path: string): DocumentScore[] {
  return recordsOf(text, path, SCORE_FIELDS);
}

/** Fields of the lists in the results. */
const RESULT_FIELDS = {
  tasks: { task: "text", metrics: "a list" },
  left_out: { task: "text", error: "text" },
} as const;

/** A list in the `results` of an evaluation; `name` stands for the document in messages. */
export function resultList<T>(
  results: unknown,
  key: keyof typeof RESULT_FIELDS,
  name: string,
): T[] {
  const place = `results of ${name}`;
  const lists = requireFields<Record<typeof key, unknown[]>>(results, { [key]: "a list" }, place);
  return lists[key].map((one, i) =>
    requireFields(one, RESULT_FIELDS[key], `results.${key}[${i}] of ${name}`)
  );
}

function recordsOf<T>(text: string, path: string, fields: Fields): T[] {
  return parseLines(text, path).map(({ value, place }) => requireFields(value, fields, place));
}

/** JSON lines of a file, each with its place for messages. */
function parseLines(text: string, path: string): { value: unknown; place: string }[] {
  const lines = text.split("\n");
  return lines.flatMap((line, i) => {
    const place = `line ${i + 1} of "${path}"`;
    const isLast = i === lines.length - 1;
    return line === "" ? [] : [{ value: parseSampleLine(line, place, isLast), place }];
  });
}

/** Samples of a file of our own, whatever tasks they belong to. */
export function parseSamples(text: string, path: string): Sample[] {
  const values = parseLines(text, path);
  const tasks = values.map(({ value }) => String((value as { task?: unknown })?.task));
  const reader = new SampleReader([...new Set(tasks)]);
  return values.flatMap(({ value, place }) => reader.read(value, place) ?? []);
}
