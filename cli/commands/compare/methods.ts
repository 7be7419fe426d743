/**
 * The methods that are compared, and their evaluations: each is a run of `parscale eval` in a process of
 * its own, so that its time and memory are its own and an interrupted one goes on.
 */
import { join } from "node:path";
import {
  isObject,
  type JsonObject,
  readJsonObject,
  readRegularText,
  statIfExists,
} from "../../../core/base/files.ts";
import type { DocumentScore } from "../../../core/eval/harness/results.ts";
import { DataError, errorFrom, UsageError } from "../../../core/base/errors.ts";
import { EXIT_CODES } from "../../output/exit_codes.ts";
import { Interrupted } from "../../output/errors.ts";
import type { Io } from "../../output/io.ts";
import { runOwn } from "../../framework/own_process.ts";
import { counted } from "../../output/units.ts";
import { prepareRows } from "../eval/data.ts";
import { rowsPlan, selectTasks } from "../eval/plan.ts";
import type { CompareValues } from "./flags.ts";
import { OverallProgress } from "./overall.ts";

/** One way to spend compute on an answer. */
export interface Method {
  readonly kind: "single" | "parscale" | "beam";
  /** Streams or beams. */
  readonly scale: number;
  /** Bits of weights where they are not exact. */
  readonly quantize: string | undefined;
  readonly label: string;
}

/** The headline of a task: a mean over its rows. */
export interface Summary {
  readonly metric: string;
  readonly value: number;
  readonly stderr: number | null;
  readonly n: number;
  /** Hash of all prompts; equal only where the same was asked. */
  readonly prompts: string;
}

/** A method with what it came to. */
export interface Evaluation {
  readonly method: Method;
  /** For messages: its folder, or where it stood on stdin. */
  readonly name: string;
  /** Of every row; undefined where only means are known. */
  readonly scores: readonly DocumentScore[] | undefined;
  /** By task. */
  readonly summaries: ReadonlyMap<string, Summary>;
  /** What one answer at a time takes. */
  readonly timing: Timing | undefined;
}

/** Measured on a few rows, one at a time. */
export interface Timing {
  readonly secondsPerAnswer: number;
  readonly secondsPerToken: number | null;
  readonly peakBytes: number | null;
}

/** Reads a finished evaluation. */
export async function readEvaluation(folder: string): Promise<Evaluation> {
  const { CONFIG, parseScores, RESULTS, SCORES } = await import(
    "../../../core/eval/harness/eval_folder.ts"
  );
  for (const name of [CONFIG, RESULTS, SCORES]) {
    if (await statIfExists(join(folder, name))) continue;
    throw new DataError(
      `"${folder}" is no finished evaluation: it has no ${name}`,
      { hints: ["pass a folder that `parscale eval --out` has finished"] },
    );
  }
  const identity = await readJsonObject(join(folder, CONFIG));
  const { results } = await readJsonObject(join(folder, RESULTS));
  const summaries = summariesOf(isObject(results) ? results : {});
  const scores = parseScores(await readRegularText(join(folder, SCORES)));
  const method = methodOf(identity, folder);
  return { method, name: `"${folder}"`, scores, summaries, timing: undefined };
}

/** Headlines of the tasks in the `results` of an evaluation. */
export function summariesOf({ tasks }: JsonObject): ReadonlyMap<string, Summary> {
  return new Map(
    (Array.isArray(tasks) ? tasks as TaskRow[] : []).map(
      ({ task, metrics: [headline], prompts_sha256: prompts }) => {
        const { metric = "", value = NaN, stderr = null, n = 0 } = headline ?? {};
        return [task, { metric, value, stderr, n, prompts }];
      },
    ),
  );
}

interface TaskRow {
  readonly task: string;
  readonly metrics: readonly Omit<Summary, "prompts">[];
  readonly prompts_sha256: string;
}

/** What an evaluation says of its model; `name` is what it is called where it says nothing. */
export function methodOf(
  { streams, num_beams: beams, quantize }: JsonObject,
  name: string,
): Method {
  const bits = typeof quantize === "string" ? quantize : undefined;
  const method = (kind: Method["kind"], scale: number, label: string): Method => ({
    kind,
    scale,
    quantize: bits,
    label: bits === undefined ? label : `${label}, ${bits}`,
  });
  if (typeof beams === "number" && beams > 1) return method("beam", beams, `${beams} beams`);
  if (typeof streams !== "number") return method("single", 1, name);
  return method(streams > 1 ? "parscale" : "single", streams, `P=${streams}`);
}

/** A method's evaluation before it is run. */
interface Plan {
  /** Of its folder. */
  readonly name: string;
  readonly args: readonly string[];
}

/** The evaluations to run, the one to compare with first. */
export async function planMethods({ model, beams, parscale }: CompareValues): Promise<Plan[]> {
  if (model === undefined) {
    throw new UsageError(
      "`compare` needs `--model`, or folders of evaluations",
      { hints: ["parscale compare --model qwen --parscale p4 --data bench"] },
    );
  }
  const plans: Plan[] = [
    { name: "p1", args: ["--model", model] },
    ...beams.map((count) => ({
      name: `beams-${count}`,
      args: ["--model", model, "--num-beams", String(count)],
    })),
  ];
  for (const [i, path] of parscale.entries()) {
    plans.push({ name: `parscale-${i + 1}`, args: await modelArguments(model, path) });
  }
  return plans;
}

/** Runs every method's evaluation in a folder below `root`. */
export async function runMethods(
  values: CompareValues,
  io: Io,
  root: string,
): Promise<Evaluation[]> {
  const { SAMPLES } = await import("../../../core/eval/harness/eval_folder.ts");
  const plans = await planMethods(values);
  const rows = await countRows(values, io);
  const timed = Math.min(values.latencyRows, rows);
  io.note(
    `${counted(plans.length, "evaluation")} of ${values.tasks.join(", ")}: ` +
      `${counted(rows, "row")} each, ${timed} of them timed one at a time`,
  );
  using overall = new OverallProgress(io, plans.length * (rows + timed));
  const evaluations: Evaluation[] = [];
  for (const { name, args } of plans) {
    const folder = join(root, name);
    const label = `evaluation ${evaluations.length + 1}/${plans.length}: ${name}`;
    const run = runChild([...args, ...sharedArguments(values), "--out", folder], values, io);
    await overall.during(run, rows, label, join(folder, SAMPLES));
    const evaluation = await readEvaluation(folder);
    const timing = await overall.during(timeAnswers(args, values, io), timed, label);
    evaluations.push({ ...evaluation, timing });
  }
  return evaluations;
}

/** Rows of the tasks that one evaluation answers. */
async function countRows(values: CompareValues, io: Io): Promise<number> {
  const own = { ...values, shard: undefined, excludeSelf: false };
  const tasks = await prepareRows(rowsPlan(own, selectTasks(values.tasks)), io);
  return tasks.reduce((sum, { documents }) => sum + documents.length, 0);
}

/** A folder of introduced tensors is an adapter of the model; anything else stands alone. */
async function modelArguments(model: string, path: string): Promise<string[]> {
  const { ADAPTER_FILE } = await import("../../../core/checkpoint/open.ts");
  const isAdapter = await statIfExists(join(path, ADAPTER_FILE)) !== undefined;
  return isAdapter ? ["--model", model, "--adapter", path] : ["--model", path];
}

function sharedArguments(values: CompareValues): string[] {
  const given = (flag: string, value: unknown) =>
    value === undefined || (Array.isArray(value) && value.length === 0)
      ? []
      : [flag, String(value)];
  return [
    ...given("--tasks", values.tasks),
    ...given("--data", values.data),
    ...given("--shots", values.shots),
    ...given("--limit", values.limit),
    ...given("--ids", values.ids),
    ...given("--max-tokens", values.maxTokens),
    ...given("--max-length", values.maxLength),
    ...given("--device", values.device),
    ...given("--dtype", values.dtype),
    ...((values.quantize ?? "none") === "none" ? [] : given("--quantize", values.quantize)),
    ...given("--block-size", values.blockSize),
    ...given("--threads", values.threads),
    ...given("--seed", values.seed),
    ...given("--batch", values.batch),
    ...given("--memory-limit", values.memoryLimit),
    ...(values.deterministic ? ["--deterministic"] : []),
    ...(values.chat ? ["--chat"] : []),
  ];
}

/** Answers a few rows one at a time, in a process that does nothing else. */
async function timeAnswers(
  args: readonly string[],
  values: CompareValues,
  io: Io,
): Promise<Timing | undefined> {
  if (values.latencyRows === 0) return undefined;
  const rows = values.ids.length > 0
    ? values.ids.slice(0, values.latencyRows)
    : Array.from({ length: Math.min(values.latencyRows, values.limit ?? Infinity) }, (_, i) => i);
  const shared = sharedArguments({ ...values, ids: rows, limit: undefined, batch: 1 });
  const text = await runChild([...args, ...shared, "--json"], values, io);
  const { stats } = JSON.parse(text).results;
  return {
    secondsPerAnswer: stats.seconds / stats.samples,
    secondsPerToken: stats.new_tokens > 0 ? stats.seconds / stats.new_tokens : null,
    peakBytes: stats.peak_rss_bytes,
  };
}

/** Runs `parscale eval` and returns what it printed; its errors go to our stderr. */
async function runChild(args: readonly string[], values: CompareValues, io: Io): Promise<string> {
  const { code, stdout } = await runOwn(["eval", ...args, "-q"], io);
  if (io.interruption.aborted) throw interrupted(values, io);
  if (code === 0) return stdout;
  const kind = EXIT_CODES.find((row) => row.code === code)?.kind;
  throw errorFrom({
    kind: kind === "usage" || kind === "data" || kind === "numerical" ? kind : "environment",
    message: `\`parscale eval ${args.join(" ")}\` failed with exit code ${code}`,
    hints: ["its own error stands above"],
  });
}

function interrupted({ out }: CompareValues, io: Io): Interrupted {
  const { signal } = io.interruption.reason as Interrupted;
  const kept = `finished answers are in ${out}; run the same command again to continue`;
  const hint = out === undefined ? "pass --out to keep answers when a comparison is ended" : kept;
  return new Interrupted(signal, [hint]);
}
