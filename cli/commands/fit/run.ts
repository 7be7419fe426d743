/** What `parscale fit` does, in order, and what does not go together. */
import { UsageError } from "../../../core/base/errors.ts";
import type { Invocation } from "../../output/document.ts";
import { exitCode } from "../../output/exit_codes.ts";
import type { Io } from "../../output/io.ts";
import { openSink, type Sink } from "../../output/sink.ts";
import { parseHoldout, splitObservations } from "./holdout.ts";
import { openInput } from "./input.ts";
import { parseQuestions, requireReachable } from "./queries.ts";
import { showStudy, writeLatex } from "./show.ts";
import { hasConverged, type Study, studyLaws } from "./study.ts";
import type { FitValues } from "./flags.ts";
import { warnAbout } from "./warn.ts";

/** Runs the command; the exit code is negative when a fit reached no optimum. */
export async function runFit(values: FitValues, io: Io, invocation: Invocation): Promise<number> {
  checkFigures(values);
  const questions = parseQuestions(values);
  const isHeldOut = parseHoldout(values.holdout);
  using figures = new Figures(values, io, invocation);
  const { name, observations } = await openInput(values, io);
  const split = splitObservations(observations, isHeldOut, values.holdout);
  const study = studyLaws(values, name, split, questions);
  requireReachable(questions, study.best.law);
  warnAbout(study, io);
  await figures.draw(study, values, io);
  if (values.latex) writeLatex(study, io, invocation);
  else await showStudy(study, io, invocation);
  return hasConverged(study) ? 0 : exitCode("negative");
}

/** The SVG files; existing ones are refused before anything is computed. */
class Figures implements Disposable {
  readonly #sinks: { readonly path: string; readonly sink: Sink; readonly isContour: boolean }[] =
    [];

  constructor({ curves, contour }: FitValues, io: Io, { overwrite }: Invocation) {
    for (const [path, isContour] of [[curves, false], [contour, true]] as const) {
      if (path === undefined) continue;
      try {
        this.#sinks.push({ path, isContour, sink: openSink(io, path, overwrite) });
      } catch (error) {
        this[Symbol.dispose]();
        throw error;
      }
    }
  }

  /** Draws and writes what was asked for; Vega is loaded only then. */
  async draw(study: Study, values: FitValues, io: Io): Promise<void> {
    if (this.#sinks.length === 0) return;
    const { drawContours, drawCurves } = await import("./figure.ts");
    for (const { path, sink, isContour } of this.#sinks) {
      sink.write(await (isContour ? drawContours(study, values) : drawCurves(study)));
      sink.commit();
      io.note(`wrote ${path}`);
    }
  }

  /** Leaves no unfinished file behind. */
  [Symbol.dispose](): void {
    for (const { sink } of this.#sinks) sink.abandon();
  }
}

/** Figures are files, each its own. */
function checkFigures({ curves, contour }: FitValues): void {
  if (curves === "-" || contour === "-") {
    throw new UsageError("figures cannot be written to stdout", {
      hints: ["name an SVG file: `--curves law.svg`"],
    });
  }
  if (curves !== undefined && curves === contour) {
    throw new UsageError(`\`--curves\` and \`--contour\` both name "${curves}"`, {
      hints: ["give each figure a file of its own"],
    });
  }
}
