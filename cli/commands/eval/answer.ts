/** A model that answers: what is not answered yet, each sample written down as it comes. */
import { letSignalsThrough } from "../../../core/base/abortable.ts";
import { DataError, UsageError } from "../../../core/base/errors.ts";
import type { JsonObject } from "../../../core/base/files.ts";
import { modelFingerprint } from "../../../core/checkpoint/fingerprint.ts";
import { peakMemory } from "../../../core/base/platform/mod.ts";
import { type ChatRenderer, requestsOf } from "../../../core/eval/harness/documents.ts";
import type { EvalFolder, RunStats } from "../../../core/eval/harness/eval_folder.ts";
import {
  type Answerer,
  type PlannedDocument,
  predict,
} from "../../../core/eval/harness/predict.ts";
import type { PreparedTask } from "../../../core/eval/harness/prepare.ts";
import { type Sample, sampleKey } from "../../../core/eval/harness/samples.ts";
import { RequestEncoder } from "../../../core/eval/harness/encode.ts";
import { largestBatch } from "../../../core/generate/batch_size.ts";
import type { Session } from "../../../core/session/session.ts";
import { renderPrompt } from "../../../core/tokenizer/chat.ts";
import { startTokenOf } from "../../../core/tokenizer/pair.ts";
import { memoryBudget, requireContext } from "../../input/limits.ts";
import type { ModelPlan } from "../../input/open_model.ts";
import { Interrupted } from "../../output/errors.ts";
import type { Io } from "../../output/io.ts";
import { type EvalPlan, temperaturesOf } from "./plan.ts";
import { TaskProgress } from "./task_progress.ts";

/** An opened model, ready to answer. */
export interface EvalModel extends Answerer {
  readonly session: Session;
  /** Hash by which samples of another model are noticed. */
  readonly fingerprint: string;
  readonly maxLength: number;
  readonly render: ChatRenderer;
}

/** @throws {UsageError} for a plan without a model, which can only be shown */
export function requireModel({ model }: EvalPlan): ModelPlan {
  if (model !== undefined) return model;
  throw new UsageError("`eval` needs `--model`", {
    hints: ["to score answers that exist already, pass --score FILE"],
  });
}

/**
 * Prepares the model of a plan for its requests.
 * @throws {DataError} for a model without a template for the conversations of `--chat`
 */
export async function prepareModel(session: Session, { values }: EvalPlan): Promise<EvalModel> {
  const tokenizer = await session.openTokenizer();
  if (values.chat && tokenizer.chatTemplate === undefined) {
    throw new DataError(`"${tokenizer.directory}" has no chat template`, {
      hints: ["leave out `--chat`; a base model was not trained on chats"],
    });
  }
  const { config } = session;
  const { maxLength = config.maxPositionEmbeddings } = values;
  requireContext(config, maxLength, `\`--max-length ${maxLength}\``);
  const startToken = startTokenOf(tokenizer, config.eosTokenIds);
  return {
    session,
    encoder: new RequestEncoder({ tokenizer, maxLength, startToken }),
    fingerprint: modelFingerprint(session.checkpoint),
    maxLength,
    render: (messages) => renderPrompt(tokenizer, messages),
  };
}

/** Everything that decides what the samples are. */
export function identityOf(
  { rows, values }: EvalPlan,
  prepared: readonly PreparedTask[],
  model: EvalModel,
): JsonObject {
  const { fingerprint, maxLength } = model;
  const { matrices: quantize } = model.session;
  const byTask = (value: (one: PreparedTask) => unknown) =>
    Object.fromEntries(prepared.map((one) => [one.task.name, value(one)]));
  return {
    model: fingerprint,
    streams: model.session.config.streams,
    tasks: byTask(({ task }) => task.version),
    shots: byTask(({ shots }) => shots),
    data: byTask(({ files }) => files.map(({ sha256 }) => sha256)),
    rows: byTask(({ documents }) => documents.length),
    ids: rows.ids ?? [],
    shard: rows.shard ? `${rows.shard.part}/${rows.shard.of}` : null,
    chat: rows.chat,
    n_samples: values.nSamples,
    temperature: values.temperature ?? null,
    top_p: values.topP,
    num_beams: values.numBeams,
    max_tokens: values.maxTokens ?? null,
    max_length: maxLength,
    seed: values.seed,
    // Absent where weights are exact, so that folders from before there was a choice continue.
    ...(quantize === "f32" ? {} : { quantize, block_size: values.blockSize ?? null }),
  };
}

/** Statistics of answering, over all runs of an evaluation that was resumed. */
export interface AnsweringStats extends Omit<RunStats, "run"> {
  readonly samples: number;
  /** New tokens of answers in free words. */
  readonly new_tokens: number;
}

/** Samples, and the work that they took. */
export interface Answers {
  readonly samples: readonly Sample[];
  readonly stats: AnsweringStats;
}

/** All samples: those in the folder, and those the model now gives. */
export async function answer(
  { values }: EvalPlan,
  prepared: readonly PreparedTask[],
  model: EvalModel,
  folder: EvalFolder | undefined,
  io: Io,
): Promise<Answers> {
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
  if (folder?.isComplete) io.note(`"${folder.path}" is complete: ${done.size} samples`);
  else if (done.size > 0) io.note(`resuming "${folder!.path}": ${done.size} samples done`);
  const requireTime = () => {
    if (io.interruption.aborted) throw interrupted(io, folder, samples.length);
  };
  const size = batchSize(model, plan, values);
  using progress = new TaskProgress(io, plan, { temperatures, batch: size }, done);
  const options = {
    ...values,
    temperatures,
    eosTokenIds: model.session.config.eosTokenIds,
    eosText: model.session.tokenizer.namedTokens.eos_token,
    batch: size,
    onRead(task: string, done: number, total: number) {
      progress.read(task, done, total);
      requireTime();
    },
    onPrefill(done: number, total: number) {
      progress.prefill(done, total);
      requireTime();
    },
  };
  using clock = new StatsClock(io, folder);
  for await (const event of predict(model, plan, options, (key) => done.has(key))) {
    if ("sample" in event) {
      samples.push(event);
      folder?.append(event);
      progress.add(event);
      clock.note();
    } else progress.grow(event);
    await letSignalsThrough();
    requireTime();
  }
  warnAboutTruncation(model, io);
  const newTokens = samples.reduce(
    (sum, { text, tokens = 0 }) => text === undefined ? sum : sum + tokens,
    0,
  );
  const { seconds, peak_rss_bytes } = addUp([...earlier, clock.stats()]);
  const stats = { samples: samples.length, seconds, new_tokens: newTokens, peak_rss_bytes };
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
    if (this.#noted === -Infinity) return;
    try {
      this.folder?.appendStats(this.stats());
    } catch {
      // What ended the run, such as a full disk, is the error to report, whatever follows.
    }
  }
}

function addUp(runs: readonly RunStats[]): Omit<RunStats, "run"> {
  const known = runs.map(({ peak_rss_bytes: peak }) => peak).filter((peak) => peak !== null);
  return {
    seconds: runs.reduce((sum, { seconds }) => sum + seconds, 0),
    peak_rss_bytes: known.length === 0 ? null : Math.max(...known),
  };
}

/** Plain requests are there already; a conversation is rendered by the model's template. */
async function planDocuments(
  prepared: readonly PreparedTask[],
  chat: EvalModel | undefined,
): Promise<PlannedDocument[]> {
  const plan = prepared.flatMap(({ documents }) => documents);
  if (!chat) return plan;
  return await Array.fromAsync(plan, async (one) => (
    { ...one, requests: await requestsOf(one.document, chat.render) }
  ));
}

/** Returns the batch asked for, or less where its keys and values would not fit into memory. */
function batchSize(
  { session: { engine }, maxLength }: EvalModel,
  plan: readonly PlannedDocument[],
  { batch, memoryLimit, maxTokens }: EvalPlan["values"],
): number {
  const lengths = plan.map(({ requests: [request] }) =>
    request!.kind === "generate_until"
      ? request!.context.length / 2 + (maxTokens ?? request!.maxTokens)
      : (request!.context.length + request!.continuation.length) / 2
  );
  // Two characters a token is more tokens than any text has.
  const slots = Math.min(maxLength, Math.ceil(lengths.reduce((a, b) => Math.max(a, b), 1)));
  const limit = memoryBudget(memoryLimit, engine.device);
  return largestBatch(engine, { use: "score", most: batch, slots, limit });
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
    `${encoder.truncated} prompts exceed ${maxLength} tokens and were truncated on the left`,
    "use fewer --shots; published scores are of whole prompts",
  );
}
