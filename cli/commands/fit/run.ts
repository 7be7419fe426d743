/** Carries out `parscale fit`: fits, warns, draws and shows. */
import type { Context } from "../../framework/context.ts";
import type { Invocation } from "../../output/document.ts";
import { exitCode } from "../../output/exit_codes.ts";
import type { Io } from "../../output/io.ts";
import { Report, reportRows } from "../../output/report.ts";
import { openFigure } from "../../output/sink.ts";
import { type FitValues, planFit } from "./plan.ts";
import { COLUMNS, drawCurves, textOf } from "./show.ts";
import { hasConverged, namesOf, resultOf, rowsOf, type Study, studyLaws } from "./study.ts";

/** Runs the command; the exit code is negative when a fit reached no optimum. */
export async function run(values: FitValues, ctx: Context): Promise<number> {
  const { io, invocation } = ctx;
  const plan = await planFit(values, io, invocation);
  ctx.begin();
  using figure = openFigure(io, plan.curves, invocation.overwrite);
  const study = studyLaws(plan);
  warnAbout(study, io);
  const hasAnswers = !["csv", "md"].includes(invocation.format);
  if (plan.questions.length > 0 && !hasAnswers) {
    io.warn("the rows are without the answers of the law", "pass --json, or no format, for them");
  }
  figure?.write(await drawCurves(study));
  await report(study, io, invocation);
  return hasConverged(study) ? 0 : exitCode("negative");
}

/** Writes the result in the format that was asked for. */
async function report(study: Study, io: Io, invocation: Invocation): Promise<void> {
  const isDocument = invocation.format.startsWith("json");
  const schema = "parscale.fit/2";
  if (!isDocument) {
    const options = { schema, columns: COLUMNS };
    return await reportRows(io, invocation, options, rowsOf(study), () => textOf(study));
  }
  using report = new Report(io, invocation, { schema });
  await report.finish(resultOf(study));
}

/** A parameter below this has run towards zero, as far as it could. */
const BOUND = 1e-8;

/** An interval is wide when it spans more than this share of the estimate. */
const WIDE = 0.5;

/** With fewer values of P or N than this, any law passes through them. */
const FEW = 3;

/** Warns about a study. */
function warnAbout(study: Study, io: Io): void {
  const { best: { law, fit }, observations, bootstrap } = study;
  if (fit === undefined) return;
  if (!hasConverged(study)) {
    io.warn(
      `no start reached an optimum: the largest slope is ${fit.slope.toExponential(1)}`,
      "look for a loss that does not belong to the others",
    );
  }
  const streams = new Set(observations.map(({ p }) => p)).size;
  const sizes = new Set(observations.map(({ n }) => n)).size;
  if (law.kind !== "chinchilla" && streams < FEW) {
    io.warn(`${streams} values of P cannot tell laws apart: any growth with P passes through them`);
  }
  if (sizes < FEW) io.warn(`${sizes} values of N cannot tell E, A and alpha apart`);
  for (const [name, key] of namesOf(law)) {
    if (law[key]! > BOUND) continue;
    io.warn(`${name} is at its bound: the losses ask for none, so its value means nothing`);
  }
  if (bootstrap !== undefined) warnAboutIntervals(study, io);
}

function warnAboutIntervals(study: Study, io: Io): void {
  const { best: { law }, bootstrap, intervals } = study;
  if (bootstrap!.laws.length === 0) {
    io.warn("no refit reached an optimum, so there are no intervals");
    return;
  }
  const wide = namesOf(law).filter(([name, key]) => {
    const { low, high } = intervals[name]!;
    return high - low > WIDE * law[key]!;
  }).map(([name]) => name);
  if (wide.length === 0) return;
  io.warn(
    `the data hardly determine ${wide.join(", ")}: ` +
      "95 percent intervals span more than half of the estimate",
    "rely on intervals of answers, not on single parameters",
  );
}
