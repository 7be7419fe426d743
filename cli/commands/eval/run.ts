/** Carries out `parscale eval`: answers, scores, reports; or one of its smaller tasks. */
import type { Sample } from "../../../core/eval/harness/samples.ts";
import { UsageError } from "../../../core/base/errors.ts";
import type { Invocation } from "../../output/document.ts";
import { exitCode } from "../../output/exit_codes.ts";
import type { Io } from "../../output/io.ts";
import { answer, openFolder } from "./answer.ts";
import { openEvalModel, requireModel } from "./model.ts";
import { type PreparedTask, prepareTasks } from "./prepare.ts";
import { report, verdict } from "./report.ts";
import { parseBounds, shortfalls, type TaskFacts } from "./results.ts";
import { requireCodeAllowed, scoreSamples, Tools } from "./score.ts";
import { selectTasks, temperaturesOf } from "./select.ts";
import type { EvalValues } from "./flags.ts";

export { describe } from "./plan.ts";

/** Runs the command; the number is its exit code. */
export async function run(
  values: EvalValues,
  io: Io,
  invocation: Invocation,
): Promise<number | void> {
  switch (values.arguments[0]) {
    case "ls":
      return await (await import("./list.ts")).listTasks(values, io, invocation);
    case "show":
      return await (await import("./show.ts")).showPrompts(values, io, invocation);
    case "fetch":
      return await (await import("./fetch.ts")).fetchCommand(values, io, invocation);
    case "merge":
      return await (await import("./merge.ts")).mergeFolders(values, io, invocation);
  }
  temperaturesOf(values);
  checkScored(values);
  if (values.score !== undefined) return await scoreFile(values, io, invocation);
  return await evaluate(values, io, invocation);
}

/** Samples are scored as they are; a model is needed for its chat template alone. */
function checkScored({ score, model, chat }: EvalValues): void {
  if (score === undefined || model === undefined || chat) return;
  throw new UsageError("`--score` cannot be combined with `--model`", {
    hints: ["leave out --model; samples are scored as they are"],
  });
}

/** Answers what is missing, then scores all. */
async function evaluate(values: EvalValues, io: Io, invocation: Invocation): Promise<number> {
  const tasks = await selectTasks(values.tasks);
  requireModel(values);
  const prepared = await prepareTasks(values, io);
  const bounds = parseBounds(values.failUnder, tasks);
  if (!values.predictOnly && tasks.some((task) => "isCode" in task && task.isCode)) {
    requireCodeAllowed(values);
  }
  using model = await openEvalModel(values, io);
  using folder = await openFolder(values, prepared, model, invocation);
  const { samples, stats } = await answer(values, prepared, model, folder, io);
  if (values.predictOnly) {
    io.note(`wrote ${samples.length} samples to ${folder!.path}/samples.jsonl`);
    return exitCode("done");
  }
  await using tools = new Tools(values, io);
  const scores = await scoreSamples(prepared, samples, tools, io, folder);
  const facts = await factsOf(prepared, tools);
  const results = await report(facts, scores, {
    values,
    io,
    invocation,
    folder,
    model: {
      fingerprint: model.fingerprint,
      device: model.session.device,
      streams: model.session.config.streams,
      beams: values.numBeams,
      quantize: model.session.matrices === "f32" ? null : model.session.matrices,
    },
    stats,
  });
  return verdict(shortfalls(bounds, results), io);
}

/** Scores samples that exist already. */
async function scoreFile(values: EvalValues, io: Io, invocation: Invocation): Promise<number> {
  const prepared = await prepareTasks(values, io);
  const bounds = parseBounds(values.failUnder, prepared.map(({ task }) => task));
  const samples = await readSampleFile(values.score!, prepared, io);
  const { EvalFolder } = await import("../../../core/eval/harness/eval_folder.ts");
  const identity = { scored: values.score, tasks: prepared.map(({ task }) => task.name) };
  using folder = values.out === undefined
    ? undefined
    : await EvalFolder.open(values.out, identity, values);
  await using tools = new Tools(values, io);
  const scores = await scoreSamples(prepared, samples, tools, io, folder);
  const facts = await factsOf(prepared, tools);
  const results = await report(facts, scores, { values, io, invocation, folder });
  return verdict(shortfalls(bounds, results), io);
}

async function readSampleFile(
  path: string,
  prepared: readonly PreparedTask[],
  io: Io,
): Promise<Sample[]> {
  const { parseSampleLine, SampleReader } = await import("../../../core/eval/harness/samples.ts");
  const reader = new SampleReader(prepared.map(({ task }) => task.name));
  const name = path === "-" ? "stdin" : `"${path}"`;
  const lines = await Array.fromAsync(io.readLines(path));
  const samples = lines.flatMap((line, i) => {
    if (line.trim() === "") return [];
    const place = `line ${i + 1} of ${name}`;
    const value = parseSampleLine(line, place, i === lines.length - 1);
    return reader.read(value, place) ?? [];
  });
  if (samples.length > 0) return samples;
  const { DataError } = await import("../../../core/base/errors.ts");
  throw new DataError(
    `${name} holds no samples of ${prepared.map(({ task }) => task.name).join(", ")}`,
  );
}

/** What results say of every task besides its scores. */
async function factsOf(
  prepared: readonly PreparedTask[],
  tools: Tools,
): Promise<TaskFacts[]> {
  const python = await tools.python();
  return prepared.map(({ task, shots, files }) => ({
    task: task.name,
    shots,
    files,
    ...("isCode" in task && task.isCode ? python : {}),
  }));
}
