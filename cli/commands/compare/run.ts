/**
 * Carries out `parscale compare`: evaluations, their differences, and the table of the paper.
 *
 * Each evaluation is a run of `parscale eval` in a process of its own, so that its time and memory are
 * its own and an interrupted one continues.
 */
import { join } from "node:path";
import { errorFrom } from "../../../core/base/errors.ts";
import { SAMPLES } from "../../../core/eval/harness/eval_folder.ts";
import { runOwn } from "../../framework/own_process.ts";
import type { Context } from "../../framework/context.ts";
import { visible } from "../../output/clean.ts";
import { Interrupted } from "../../output/errors.ts";
import { EXIT_CODES, exitCode } from "../../output/exit_codes.ts";
import type { Io } from "../../output/io.ts";
import { Progress } from "../../output/progress.ts";
import { reportRows } from "../../output/report.ts";
import { counted } from "../../output/units.ts";
import { prepareRows } from "../../input/published_rows.ts";
import { type Evaluation, nameApart, readAll, readEvaluation, type Timing } from "./evaluations.ts";
import {
  type ComparePlan,
  type CompareValues,
  describe,
  planComparison,
  sharedArguments,
} from "./plan.ts";
import { compareScores, conclusions, paperRows, rowOf } from "./show.ts";

/** Runs the command; the number is its exit code. */
export async function run(given: CompareValues, ctx: Context): Promise<number> {
  const { io, invocation } = ctx;
  const plan = await planComparison(given, io, invocation);
  if (ctx.isDryRun) ctx.end(await describe(plan, io));
  const evaluations = nameApart(
    plan.methods.length > 0
      ? await evaluateAll(plan, io)
      : await readAll(plan.values.arguments, io),
  );
  const comparisons = compareScores(evaluations);
  const isTable = invocation.format === "table" || invocation.format === "md";
  const rows = isTable ? paperRows(comparisons) : comparisons.map(rowOf);
  await reportRows(io, invocation, { schema: "parscale.compare/1" }, rows);
  if (invocation.format === "table") {
    const text = conclusions(comparisons).map(visible).join("\n");
    io.say(text + "\n");
  }
  const worse = comparisons.filter(({ method, against }) =>
    method.kind === "parscale" && against && against.high < 0
  );
  const first = evaluations[0]!.method.label;
  for (const { method, task } of worse) {
    io.warn(`${method.label} is worse than ${first} on ${task}`);
  }
  return exitCode(worse.length > 0 ? "negative" : "done");
}

async function evaluateAll(plan: ComparePlan, io: Io): Promise<Evaluation[]> {
  const { out } = plan.values;
  if (out !== undefined) return await runMethods(plan, io, out);
  const scratch = await Deno.makeTempDir({ prefix: "parscale-compare-" });
  try {
    return await runMethods(plan, io, scratch);
  } finally {
    await Deno.remove(scratch, { recursive: true });
  }
}

const POLL_MS = 500;

/** Runs every method's evaluation in a folder below `root`. */
async function runMethods(plan: ComparePlan, io: Io, root: string): Promise<Evaluation[]> {
  const { methods, values } = plan, { tasks, overwrite } = values;
  const shared = sharedArguments(values);
  const prepared = await prepareRows(plan.rows, io);
  const rows = prepared.reduce((sum, { documents }) => sum + documents.length, 0);
  const timed = Math.min(values.latencyRows, rows);
  io.note(
    `${counted(methods.length, "evaluation")} of ${tasks.join(", ")}: ` +
      `${counted(rows, "row")} each, ${timed} of them timed one at a time`,
  );
  const total = methods.length * (rows + timed);
  using progress = new Progress(io, { label: "Comparing", unit: "samples", total });
  let done = 0, earlier = 0;
  /** Waits for work on `samples` samples, and follows it by the lines of its file, if it writes one. */
  const during = async <T>(work: Promise<T>, samples: number, label: string, path?: string) => {
    const before = overwrite || path === undefined ? 0 : countSamples(path);
    earlier += before;
    const show = (samples: number) => {
      // Samples of earlier runs are not work of this one.
      progress.update(samples, label, { done: samples - earlier, total: total - earlier });
    };
    const poll = () => path && show(done + Math.max(before, Math.min(samples, countSamples(path))));
    const timer = setInterval(poll, POLL_MS);
    try {
      return await work;
    } finally {
      clearInterval(timer);
      show(done += samples);
    }
  };
  const evaluations: Evaluation[] = [];
  for (const [i, { name, args }] of methods.entries()) {
    const folder = join(root, name);
    const label = `evaluation ${i + 1}/${methods.length}: ${name}`;
    const target = ["--out", folder, ...(overwrite ? ["--overwrite"] : [])];
    const run = runChild([...args, ...shared, ...target], values, io);
    await during(run, rows, label, join(folder, SAMPLES));
    const evaluation = await readEvaluation(folder);
    const timing = await during(timeAnswers(args, values, io), timed, label);
    evaluations.push({ ...evaluation, name, timing });
  }
  return evaluations;
}

/** Samples in the file of an evaluation, which appears with the first. */
function countSamples(path: string): number {
  try {
    return Deno.readTextFileSync(path).split("\n").length - 1;
  } catch {
    return 0;
  }
}

/** Answers a few rows one at a time, in a process that does nothing else. */
async function timeAnswers(
  args: readonly string[],
  values: CompareValues,
  io: Io,
): Promise<Timing | undefined> {
  const { ids, limit = Infinity, latencyRows } = values;
  if (latencyRows === 0) return undefined;
  const timed = ids.length > 0
    ? { ids: ids.slice(0, latencyRows) }
    : { limit: Math.min(latencyRows, limit) };
  const shared = sharedArguments({ ...values, ...timed, batch: 1 });
  const text = await runChild([...args, ...shared, "--json"], values, io);
  const { stats } = JSON.parse(text).results;
  return {
    secondsPerAnswer: stats.seconds / stats.samples,
    secondsPerToken: stats.new_tokens > 0 ? stats.seconds / stats.new_tokens : null,
    peakBytes: stats.peak_rss_bytes,
  };
}

/** Runs `parscale eval` and returns what it printed; its errors go to our stderr. */
async function runChild(args: readonly string[], { out }: CompareValues, io: Io): Promise<string> {
  const { code, stdout } = await runOwn(["eval", ...args, "-q"], io);
  if (io.interruption.aborted) {
    const { signal } = io.interruption.reason as Interrupted;
    const kept = `finished answers are in ${out}; run the same command again to continue`;
    const lost = "pass --out to keep answers when a comparison is ended";
    throw new Interrupted(signal, [out === undefined ? lost : kept]);
  }
  if (code === 0) return stdout;
  const kind = EXIT_CODES.find((row) => row.code === code)?.kind;
  throw errorFrom({
    kind: kind === "usage" || kind === "data" || kind === "numerical" ? kind : "environment",
    message: `\`parscale eval ${args.join(" ")}\` failed with exit code ${code}`,
    hints: ["its own error stands above"],
  });
}
