/** Carries out `parscale eval`: answers, scores, reports; or one of its smaller tasks. */
import { cacheFolder } from "../../../core/base/cache_folder.ts";
import { DataError } from "../../../core/base/errors.ts";
import type { Grader } from "../../../core/eval/grading/code/grade.ts";
import type { ChatRenderer } from "../../../core/eval/harness/documents.ts";
import { EvalFolder, PASSING } from "../../../core/eval/harness/eval_folder.ts";
import { passingLines } from "../../../core/eval/harness/passing.ts";
import type { PreparedTask } from "../../../core/eval/harness/prepare.ts";
import type { DocumentScore, TaskFacts } from "../../../core/eval/harness/results.ts";
import { parseSampleLine, type Sample, SampleReader } from "../../../core/eval/harness/samples.ts";
import { scoreSamples, type Watch } from "../../../core/eval/harness/score.ts";
import { isCode, type ScoringTools } from "../../../core/eval/harness/task.ts";
import type { Context } from "../../framework/context.ts";
import type { Invocation } from "../../output/document.ts";
import { exitCode } from "../../output/exit_codes.ts";
import { inputName, type Io } from "../../output/io.ts";
import { Progress } from "../../output/progress.ts";
import { Report } from "../../output/report.ts";
import { counted } from "../../output/units.ts";
import { noteContinued, openModel } from "../../input/open_model.ts";
import { fetchFiles, prepareAvailable } from "../../input/published_rows.ts";
import {
  type EvalPlan,
  type EvalValues,
  planEvaluation,
  requireCodeAllowed,
  requireTasksAllowed,
} from "./plan.ts";
import { type Answered, describe, listTasks, report, showPrompts } from "./show.ts";

/** Runs the command; the number is its exit code. */
export async function run(values: EvalValues, ctx: Context): Promise<number | void> {
  const { io, invocation } = ctx;
  const plan = await planEvaluation(values, invocation);
  if (ctx.isDryRun) ctx.end(await describe(plan, io));
  switch (plan.kind) {
    case "list":
      return await listTasks(plan, io, invocation);
    case "show":
      return await showPrompts(plan, io, invocation);
    case "fetch":
      return await fetchFiles(plan.rows, values.overwrite, io, invocation);
    case "score":
      return await scoreFile(plan, io, invocation);
    case "evaluate":
      return await evaluate(plan, io, invocation);
  }
}

/** Answers what is missing, then scores all. */
async function evaluate(plan: EvalPlan, io: Io, invocation: Invocation): Promise<number> {
  const { values, rows } = plan, { out } = values;
  // Loads the engine, which no other task of `eval` needs.
  const { answer, identityOf, prepareModel, requireModel } = await import("./answer.ts");
  const asked = requireModel(plan);
  const available = await prepareAvailable(rows, io), { prepared } = available;
  requireTasksAllowed(plan, prepared);
  using session = await openModel(asked, io);
  const model = await prepareModel(session, plan);
  using folder = out === undefined
    ? undefined
    : await EvalFolder.open(out, identityOf(plan, prepared, model), values);
  const writes = prepared.some(({ task }) => task.kind === "generation");
  if (writes && !rows.chat) noteContinued(io, session.tokenizer);
  const { samples, stats } = await answer(plan, prepared, model, folder, io);
  const { device, matrices } = session;
  if (values.predictOnly) {
    using output = new Report(io, invocation, { schema: "parscale.eval-answers/1", device });
    await output.finish({ out: folder!.path, samples: samples.length });
    return exitCode(available.leftOut.length > 0 ? "negative" : "done");
  }
  const about = {
    fingerprint: model.fingerprint,
    device,
    streams: session.config.streams,
    beams: values.numBeams,
    quantize: matrices === "f32" ? null : matrices,
  };
  const { render } = model;
  return await score({ ...available, plan, io, invocation, samples, folder, render, stats, about });
}

/** Scores samples that exist already. */
async function scoreFile(plan: EvalPlan, io: Io, invocation: Invocation): Promise<number> {
  const { out, score: path = "-" } = plan.values;
  const available = await prepareAvailable(plan.rows, io), { prepared } = available;
  const samples = await readSampleFile(path, prepared, io);
  const identity = { scored: path, tasks: prepared.map(({ task }) => task.name) };
  using folder = out === undefined ? undefined : await EvalFolder.open(out, identity, plan.values);
  // Without the model there is no template: a conversation is logged as its messages.
  const render: ChatRenderer = (messages) => Promise.resolve(JSON.stringify(messages));
  return await score({ ...available, plan, io, invocation, samples, folder, render });
}

async function score(answered: Answered): Promise<number> {
  const { plan, io, prepared } = answered;
  await using tools = new Tools(plan.values, io);
  const scores = await scoreAll(answered, tools);
  return await report(await factsOf(prepared, tools), scores, answered);
}

/** Scores samples; the answers that passed go into the folder where that is asked for. */
async function scoreAll(
  { plan, io, prepared, samples, folder }: Answered,
  tools: Tools,
): Promise<DocumentScore[]> {
  const watch = watchOf(io);
  const scores = await scoreSamples(prepared, samples, tools, watch, folder);
  if (!plan.values.passing || !folder) return scores;
  const single = { ...watch, warn: () => {} };
  const lines = await passingLines(prepared, samples, async (some) => (
    some.length === samples.length ? scores : await scoreSamples(prepared, some, tools, single)
  ));
  await folder.writePassing(lines);
  io.note(
    `${counted(lines.length, "answer")} of ${samples.length} passed: ${folder.path}/${PASSING}`,
  );
  return scores;
}

function watchOf(io: Io): Watch {
  return {
    interruption: io.interruption,
    warn: (...words) => io.warn(...words),
    progress: (label, total) => new Progress(io, { label, unit: "rows", total }),
  };
}

/** Opens the sandbox when a scorer asks for it first; the user must have allowed code to run. */
class Tools implements ScoringTools, AsyncDisposable {
  readonly sanitize: boolean;
  #grader: Promise<Grader> | undefined;

  constructor(readonly values: EvalValues, readonly io: Io) {
    this.sanitize = values.sanitize;
  }

  async grader(): Promise<Grader> {
    requireCodeAllowed(this.values);
    return await (this.#grader ??= this.#open());
  }

  /** Python of the sandbox, where one was opened. */
  async python(): Promise<{ sandbox: string; python: string } | undefined> {
    const grader = await this.#grader;
    return grader && { sandbox: grader.sandbox, python: grader.pythonVersion };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const grader = await this.#grader?.catch(() => undefined);
    await grader?.[Symbol.asyncDispose]();
  }

  async #open(): Promise<Grader> {
    // Loads the sandbox, which only programs need.
    const { openGrader } = await import("../../../core/eval/grading/code/grade.ts");
    const { sandbox } = this.values;
    const grader = await openGrader({
      shell: sandbox === "pyodide" ? "none" : sandbox,
      cacheFolder: cacheFolder(this.io.env),
    });
    this.io.note(
      `running programs in the ${grader.sandbox} sandbox, Python ${grader.pythonVersion}`,
    );
    return grader;
  }
}

async function readSampleFile(
  path: string,
  prepared: readonly PreparedTask[],
  io: Io,
): Promise<Sample[]> {
  const reader = new SampleReader(prepared.map(({ task }) => task.name));
  const name = inputName(path);
  const lines = await Array.fromAsync(io.readLines(path));
  const samples = lines.flatMap((line, i) => {
    if (line.trim() === "") return [];
    const place = `line ${i + 1} of ${name}`;
    const value = parseSampleLine(line, place, i === lines.length - 1);
    return reader.read(value, place) ?? [];
  });
  if (samples.length > 0) return samples;
  throw new DataError(
    `${name} holds no samples of ${prepared.map(({ task }) => task.name).join(", ")}`,
  );
}

/** Returns what results say of every task besides its scores. */
async function factsOf(prepared: readonly PreparedTask[], tools: Tools): Promise<TaskFacts[]> {
  const python = await tools.python();
  return prepared.map(({ task, shots, promptFormat, files }) => ({
    task,
    shots,
    prompt_format: promptFormat,
    files,
    ...(isCode(task) ? python : {}),
  }));
}
