/** Carries out `parscale compare`: evaluations, their differences, and the table of the paper. */
import { UsageError } from "../../../core/base/errors.ts";
import { selectTasks } from "../eval/plan.ts";
import type { PlanText } from "../../framework/command.ts";
import { visible } from "../../output/clean.ts";
import type { Invocation } from "../../output/document.ts";
import { exitCode } from "../../output/exit_codes.ts";
import type { Io } from "../../output/io.ts";
import { openReport } from "../../output/report.ts";
import { type Evaluation, planMethods, readEvaluation, runMethods } from "./methods.ts";
import { compareScores, type Comparison, conclusions, paperRows } from "./table.ts";
import type { CompareValues } from "./flags.ts";

/** Text of `--dry-run`. */
export async function describe(values: CompareValues): Promise<PlanText> {
  if (values.arguments.length > 0) return { lines: [] };
  const methods = await planMethods(values);
  const lines = methods.map(({ args }) => `parscale eval ${args.join(" ")}`);
  return { lines, results: { evaluations: methods.length } };
}

/** Runs the command; the number is its exit code. */
export async function run(
  values: CompareValues,
  io: Io,
  invocation: Invocation,
): Promise<number> {
  const evaluations = await evaluationsOf(values, io);
  const comparisons = compareScores(evaluations);
  const isTable = invocation.format === "table" || invocation.format === "md";
  using report = openReport(io, invocation, { schema: "parscale.compare/1" });
  for (const row of isTable ? paperRows(comparisons) : comparisons.map(rowOf)) report.row(row);
  await report.finish();
  if (invocation.format === "table") {
    const text = conclusions(comparisons).map(visible).join("\n");
    io.write(text + "\n");
  }
  const worse = comparisons.filter(({ method, against }) =>
    method.kind === "parscale" && against && against.high < 0
  );
  for (const { method, task } of worse) io.warn(`${method.label} is worse than P=1 on ${task}`);
  return exitCode(worse.length > 0 ? "negative" : "done");
}

async function evaluationsOf(values: CompareValues, io: Io): Promise<Evaluation[]> {
  if (values.arguments.length > 0) {
    return await readAll(values.arguments, io);
  }
  for (const task of selectTasks(values.tasks)) {
    if (task.kind === "generation" && !task.isCode) continue;
    throw new UsageError(
      `\`compare\` cannot use ${task.name}: ${
        task.kind === "generation" ? "its answers are programs" : "its answers are given choices"
      }`,
      { hints: ["use gsm8k, gsm8k_cot or minerva_math"] },
    );
  }
  if (values.out !== undefined) return await runMethods(values, io, values.out);
  const scratch = await Deno.makeTempDir({ prefix: "parscale-compare-" });
  try {
    return await runMethods(values, io, scratch);
  } finally {
    await Deno.remove(scratch, { recursive: true });
  }
}

/** Evaluations from folders, and those whose documents stand on stdin where a - is. */
async function readAll(paths: readonly string[], io: Io): Promise<Evaluation[]> {
  if (paths.filter((path) => path === "-").length > 1) {
    throw new UsageError("`-` is given twice; stdin can be read once");
  }
  const evaluations: Evaluation[] = [];
  for (const path of paths) {
    if (path !== "-") evaluations.push(await readEvaluation(path));
    else {
      const { readDocuments } = await import("./documents.ts");
      evaluations.push(...await readDocuments(io));
    }
  }
  if (evaluations.length >= 2) return evaluations;
  const given = evaluations.length === 0 ? "none" : "one";
  throw new UsageError(`\`compare\` needs at least two evaluations; there is ${given}`);
}

/** For programs: everything, one method and task a row. */
function rowOf({ method, task, metric, mean, against, isPaired, timing }: Comparison) {
  return {
    method: method.kind,
    scale: method.scale,
    quantize: method.quantize ?? null,
    label: method.label,
    task,
    metric,
    value: mean.value,
    stderr: mean.stderr ?? null,
    rows: mean.n,
    difference: against?.difference ?? null,
    difference_low: against?.low ?? null,
    difference_high: against?.high ?? null,
    paired: against ? isPaired : null,
    latency_s: timing?.secondsPerAnswer ?? null,
    latency_s_per_token: timing?.secondsPerToken ?? null,
    peak_rss_bytes: timing?.peakBytes ?? null,
  };
}
