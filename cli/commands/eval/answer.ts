/**
 * Lets the model answer what is not answered yet, writing each sample down as it comes.
 */
import { memoryInfo, peakMemory } from "../../../core/base/platform/mod.ts";
import type { EvalFolder, RunStats } from "../../../core/eval/harness/eval_folder.ts";
import type { PlannedDocument } from "../../../core/eval/harness/predict.ts";
import type { Sample } from "../../../core/eval/harness/samples.ts";
import { DataError } from "../../../core/base/errors.ts";
import type { JsonObject } from "../../../core/base/files.ts";
import type { Invocation } from "../../output/document.ts";
import { Interrupted } from "../../output/errors.ts";
import type { Io } from "../../output/io.ts";
import { type Progress, startProgress } from "../../output/progress.ts";
import type { EvalModel } from "./model.ts";
import type { PreparedTask } from "./prepare.ts";
import { temperaturesOf } from "./select.ts";
import type { EvalValues } from "./flags.ts";

/** Share of the machine's free memory that keys and values may take without --memory-limit. */
const MEMORY_SHARE = 0.8;

/** Opens --out, where given; a run of other tasks, data or model there is refused. */
export async function openFolder(
  values: EvalValues,
  prepared: readonly PreparedTask[],
  model: EvalModel,
  invocation: Invocation,
): Promise<EvalFolder | undefined> {
  if (values.out === undefined) return undefined;
  const { EvalFolder } = await import("../../../core/eval/harness/eval_folder.ts");
  return await EvalFolder.open(values.out, identityOf(values, prepared, model), {
    overwrite: invocation.overwrite,
    resume: values.resume,
  });
}

/** Everything that decides what the samples are. */
function identityOf(
  values: EvalValues,
  prepared: readonly PreparedTask[],
  model: EvalModel,
): JsonObject {
  const { fingerprint, maxLength } = model;
  const byTask = (value: (one: PreparedTask) => unknown) =>
    Object.fromEntries(prepared.map((one) => [one.task.name, value(one)]));
  return {
    model: fingerprint,
    streams: model.engine.config.streams,
    tasks: byTask(({ task }) => task.version),
    shots: byTask(({ shots }) => shots),
    data: byTask(({ files }) => files.map(({ sha256 }) => sha256)),
    rows: byTask(({ documents }) => documents.length),
    ids: values.ids,
    shard: values.shard ?? null,
    chat: values.chat,
    n_samples: values.nSamples,
    temperature: values.temperature ?? null,
    top_p: values.topP,
    num_beams: values.numBeams,
    max_tokens: values.maxTokens ?? null,
    max_length: maxLength,
    seed: values.seed,
    ...quantizationOf(values),
  };
}

/** Absent where weights are exact, so that folders from before there was a choice go on. */
function quantizationOf({ quantize, blockSize }: EvalValues): JsonObject {
  return (quantize ?? "none") === "none" ? {} : { quantize, block_size: blockSize ?? null };
}

/** What answering took, over all runs of an evaluation that was resumed. */
export interface AnsweringStats {
  readonly samples: number;
  readonly seconds: number;
  /** New tokens of answers in free words. */
  readonly new_tokens: number;
  /** Most memory the process had; null where the system does not tell. */
  readonly peak_rss_bytes: number | null;
}

/** Samples with what they took. */
export interface Answers {
  readonly samples: readonly Sample[];
  readonly stats: AnsweringStats;
}

/** All samples: those in the folder, and those the model now gives. */
export async function answer(
  values: EvalValues,
  prepared: readonly PreparedTask[],
  model: EvalModel,
  folder: EvalFolder | undefined,
  io: Io,
): Promise<Answers> {
  const { predict } = await import("../../../core/eval/harness/predict.ts");
  const { sampleKey } = await import("../../../core/eval/harness/samples.ts");
  const samples = await folder?.readSamples() ?? [];
  const earlier = await folder?.readStats() ?? [];
  const temperatures = temperaturesOf(values);
  const plan = await planDocuments(prepared, values.chat ? model : undefined);
  const hashes = new Map(
    plan.map(({ document, hash }) => [`${document.task.name}/${document.id}`, hash]),
  );
  for (const { task, doc_id, request } of samples) {
    if (hashes.get(`${task}/${doc_id}`) === request) continue;
    throw new DataError(
      `cannot resume "${folder!.path}": its row ${doc_id} of ${task} answers another prompt`,
      { hints: ["replace the evaluation with --overwrite"] },
    );
  }
  const done = new Set(samples.map(sampleKey));
  if (done.size > 0) io.note(`resuming "${folder!.path}": ${done.size} samples done`);
  const counts = new Map(
    prepared.map(({ task, documents }) => [
      task.name,
      documents.length * temperatures(task).length,
    ]),
  );
  using progress = new TaskProgress(io, counts, samples);
  const options = {
    temperatures,
    topP: values.topP,
    seed: values.seed,
    beams: values.numBeams,
    eosTokenIds: model.engine.config.eosTokenIds,
    eosText: model.tokenizer.namedTokens.eos_token,
    maxTokens: values.maxTokens,
    batch: await batchSize(values, model, plan),
  };
  using clock = new StatsClock(io, folder);
  for await (const sample of predict(model, plan, options, (key) => done.has(key))) {
    samples.push(sample);
    folder?.append(sample);
    progress.add(sample);
    clock.note();
    // Lets a signal arrive where the model never waits.
    await new Promise((resolve) => setTimeout(resolve, 0));
    if (io.interruption.aborted) throw interrupted(io, folder, samples.length);
  }
  warnAboutTruncation(model, io);
  const { seconds, peak } = addUp([...earlier, clock.stats()]);
  const tokens = samples.reduce(
    (sum, { text, tokens = 0 }) => text === undefined ? sum : sum + tokens,
    0,
  );
  const stats = { samples: samples.length, seconds, new_tokens: tokens, peak_rss_bytes: peak };
  return { samples, stats };
}

/** Milliseconds between two notes of what a run took. */
const NOTE_MS = 1000;

/** Measures this run, and writes it down often enough that a kill loses little. */
class StatsClock implements Disposable {
  readonly #run = new Date().toISOString();
  readonly #began: number;
  #noted = -Infinity;

  constructor(readonly io: Io, readonly folder: EvalFolder | undefined) {
    this.#began = io.system.now();
  }

  stats(): RunStats {
    const seconds = (this.io.system.now() - this.#began) / 1000;
    return { run: this.#run, seconds, peak_rss_bytes: peakMemory() };
  }

  note(): void {
    if (!this.folder || this.io.system.now() - this.#noted < NOTE_MS) return;
    this.#noted = this.io.system.now();
    this.folder.appendStats(this.stats());
  }

  /** The last note, whatever ended the run; one without a sample leaves none. */
  [Symbol.dispose](): void {
    if (this.#noted > -Infinity) this.folder?.appendStats(this.stats());
  }
}

function addUp(runs: readonly RunStats[]): { seconds: number; peak: number | null } {
  const peaks = runs.map(({ peak_rss_bytes: peak }) => peak).filter((peak) => peak !== null);
  return {
    seconds: runs.reduce((sum, { seconds }) => sum + seconds, 0),
    peak: peaks.length === 0 ? null : peaks.reduce((a, b) => Math.max(a, b)),
  };
}

/** Plain requests are there already; a conversation is rendered by the model's template. */
async function planDocuments(
  prepared: readonly PreparedTask[],
  chat: EvalModel | undefined,
): Promise<PlannedDocument[]> {
  const plan = prepared.flatMap(({ documents }) => documents);
  if (!chat) return plan;
  const { requestsOf } = await import("../../../core/eval/harness/documents.ts");
  const rendered: PlannedDocument[] = [];
  for (const one of plan) {
    rendered.push({ ...one, requests: await requestsOf(one.document, chat.render) });
  }
  return rendered;
}

/** --batch, or less where keys and values of so many sequences would not fit into memory. */
async function batchSize(
  { batch, memoryLimit, maxTokens }: EvalValues,
  { engine, maxLength }: EvalModel,
  plan: readonly PlannedDocument[],
): Promise<number> {
  const { largestBatch } = await import("../../../core/generate/score.ts");
  const lengths = plan.map(({ requests: [request] }) =>
    request!.kind === "generate_until"
      ? request!.context.length / 2 + (maxTokens ?? request!.maxTokens)
      : (request!.context.length + request!.continuation.length) / 2
  );
  // Two characters a token is more tokens than any text has.
  const slots = Math.min(maxLength, Math.ceil(lengths.reduce((a, b) => Math.max(a, b), 1)));
  const limit = memoryLimit ?? memoryInfo().available * MEMORY_SHARE;
  return largestBatch(engine, batch, slots, limit);
}

function interrupted(io: Io, folder: EvalFolder | undefined, count: number): unknown {
  const reason = io.interruption.reason;
  if (!(reason instanceof Interrupted) || !folder) return reason;
  return new Interrupted(reason.signal, [
    `${count} samples are in ${folder.path}; run the same command again to resume`,
  ]);
}

function warnAboutTruncation({ encoder, maxLength }: EvalModel, io: Io): void {
  if (encoder.truncated === 0) return;
  io.warn(
    `${encoder.truncated} prompts lost their beginning, since they are longer than ${maxLength} tokens`,
    "use fewer --shots; published scores are of whole prompts",
  );
}

/** One progress line per task, with its rate and the time left for it. */
class TaskProgress implements Disposable {
  readonly #done = new Map<string, number>();
  #task: string | undefined;
  #line: Progress | undefined;
  #before = 0;

  constructor(
    readonly io: Io,
    readonly totals: ReadonlyMap<string, number>,
    samples: readonly Sample[],
  ) {
    for (const { task } of samples) this.#done.set(task, (this.#done.get(task) ?? 0) + 1);
  }

  add({ task }: Sample): void {
    const done = (this.#done.get(task) ?? 0) + 1;
    this.#done.set(task, done);
    if (task !== this.#task) {
      this.#line?.[Symbol.dispose]();
      this.#before = done - 1;
      const total = this.totals.get(task)! - this.#before;
      this.#line = startProgress(this.io, { label: `Evaluating ${task}`, unit: "samples", total });
      this.#task = task;
    }
    this.#line!.update(done - this.#before);
  }

  [Symbol.dispose](): void {
    this.#line?.[Symbol.dispose]();
  }
}
