/**
 * Runs a model on the requests of all tasks.
 *
 * Choices are scored task by task, with shared prefixes computed once; all answers in free words go
 * through one continuous batch, in the order of the tasks. Every sample draws from a random stream
 * named after task, row and sample, so its text does not depend on what else is run, or was run before.
 */
import type { FinishReason } from "../../generate/request.ts";
import { GREEDY } from "../../base/sampling.ts";
import type { Score } from "../../generate/score.ts";
import { scoreSets } from "../../generate/score_sets.ts";
import { RandomStream } from "../../base/random.ts";
import type { Session } from "../../session/session.ts";
import { complete, type CompletionRequest, decodeCompletion } from "../../session/stream.ts";
import type { Document, LikelihoodRequest, Request, TextRequest } from "./documents.ts";
import type { RequestEncoder } from "./encode.ts";
import { type Sample, sampleKey } from "./samples.ts";
import { isCode, type Task } from "./task.ts";

/** A document with its requests. */
export interface PlannedDocument {
  readonly document: Document;
  readonly requests: readonly Request[];
  /** See `requestHash`. */
  readonly hash: string;
}

/** Options of free-form answers. */
export interface DecodingOptions {
  /** Sequences side by side. */
  readonly batch: number;
  /** Temperature of every sample of a task's documents, in order; 0 is greedy. */
  readonly temperatures: (task: Task) => readonly number[];
  readonly topP: number;
  readonly seed: number;
  /** Number of beams; above 1 answers come from beam search. */
  readonly numBeams: number;
  readonly eosTokenIds: readonly number[];
  /** Text of the end token, which ends an answer where it is spelt out. */
  readonly eosText: string | undefined;
  /** Maximum number of new tokens, instead of the tasks' own. */
  readonly maxTokens: number | undefined;
  /** Called after every chunk with the tokens that are read of a task's texts or choices, and all. */
  readonly onRead?: (task: string, done: number, total: number) => void;
  /** The same of the prompts under way, of all tasks. */
  readonly onPrefill?: (done: number, total: number) => void;
}

/** A model that answers. */
export interface Answerer {
  /** Its tokenizer is open. */
  readonly session: Pick<Session, "engine" | "tokenizer" | "beamSearch">;
  readonly encoder: RequestEncoder;
}

/** A token of an answer under way. */
export interface Unfinished {
  readonly task: string;
}

/**
 * Answers all documents but for samples whose key `isDone`. Between samples it tells that it is at work,
 * so that a caller may stop it.
 */
export async function* predict(
  model: Answerer,
  plan: readonly PlannedDocument[],
  options: DecodingOptions,
  isDone: (key: string) => boolean,
): AsyncGenerator<Sample | Unfinished> {
  const byTask = Map.groupBy(plan, ({ document }) => document.task);
  for (const [task, planned] of byTask) {
    if (task.kind !== "generation") yield* scoreTexts(model, planned, options, isDone);
  }
  const open = plan.filter(({ document }) => document.task.kind === "generation");
  yield* options.numBeams > 1
    ? searchAnswers(model, open, options, isDone)
    : sampleAnswers(model, open, options, isDone);
}

function keyOf({ document, hash }: PlannedDocument, sample: number) {
  return { task: document.task.name, doc_id: document.id, sample, request: hash };
}

async function* scoreTexts(
  { session: { engine }, encoder }: Answerer,
  planned: readonly PlannedDocument[],
  { batch, onRead }: DecodingOptions,
  isDone: (key: string) => boolean,
): AsyncGenerator<Sample> {
  const isDoneAt = (i: number) => isDone(sampleKey(keyOf(planned[i]!, 0)));
  if (planned.every((_, i) => isDoneAt(i))) return;
  // A set is computed at once: windows of a text, of which there may be many, are sets of their own.
  const parts = planned.flatMap(({ requests }, at) => {
    const asked = requests as LikelihoodRequest[], [first] = asked;
    const sets = first!.kind === "loglikelihood_rolling"
      ? encoder.windows(first!).map((window) => [window])
      : [encoder.pairs(asked)];
    const of = { at, count: sets.length, read: 0, found: [] as Score[][] };
    return sets.map((set, part) => ({ of, part, set }));
  });
  const sets = parts.map(({ set }) => set), skip = (i: number) => isDoneAt(parts[i]!.of.at);
  const { name } = planned[0]!.document.task;
  const options = { batch, skip, onRead: (done: number, all: number) => onRead?.(name, done, all) };
  for await (const { index, scores: some } of scoreSets(engine, sets, options)) {
    const { of, part } = parts[index]!, { at, count, found } = of;
    const { document } = planned[at]!;
    found[part] = some;
    if (++of.read < count) continue;
    const scores = found.splice(0).flat();
    const key = keyOf(planned[at]!, 0);
    const values = scores.map(({ loglikelihood }) => loglikelihood);
    if (document.task.kind === "perplexity") {
      const tokens = scores.reduce((sum, { tokenLogprobs }) => sum + tokenLogprobs.length, 0);
      yield { ...key, loglikelihood: [values.reduce((sum, x) => sum + x, 0)], tokens };
    } else yield { ...key, loglikelihood: values, is_greedy: scores.map((one) => one.isGreedy) };
  }
}

/** An answer under way. */
interface Open {
  readonly planned: PlannedDocument;
  readonly sample: number;
  readonly temperature: number;
  readonly tokens: readonly number[];
  readonly stops: readonly string[];
}

async function* sampleAnswers(
  model: Answerer,
  plan: readonly PlannedDocument[],
  options: DecodingOptions,
  isDone: (key: string) => boolean,
): AsyncGenerator<Sample | Unfinished> {
  const requests = function* (): Generator<CompletionRequest<Omit<Open, "tokens">>> {
    for (const planned of plan) {
      for (const [sample, temperature] of options.temperatures(planned.document.task).entries()) {
        const key = sampleKey(keyOf(planned, sample));
        if (isDone(key)) continue;
        const { request, stops } = begin(model, planned, options);
        yield {
          ...request,
          of: { planned, sample, temperature, stops },
          stop: stops,
          sampling: temperature === 0
            ? GREEDY
            : { temperature, topP: options.topP, topK: 0, minP: 0 },
          random: new RandomStream(options.seed, key),
        };
      }
    }
  };
  const { engine, tokenizer } = model.session;
  for await (const event of complete(engine, tokenizer, requests(), options)) {
    const { of, stream: { tokens }, finishReason, error } = event;
    if (error !== undefined) throw error;
    yield finishReason
      ? finish(model, { ...of, tokens }, finishReason)
      : { task: of.planned.document.task.name };
  }
}

async function* searchAnswers(
  model: Answerer,
  plan: readonly PlannedDocument[],
  options: DecodingOptions,
  isDone: (key: string) => boolean,
): AsyncGenerator<Sample> {
  for (const planned of plan) {
    if (isDone(sampleKey(keyOf(planned, 0)))) continue;
    const { request, stops } = begin(model, planned, options);
    const { tokens: prompt, ...limits } = request;
    const search = { ...limits, numBeams: options.numBeams, stop: stops };
    const [best] = await model.session.beamSearch(prompt, search);
    const answer = { planned, sample: 0, temperature: 0, tokens: best!.tokens, stops };
    yield finish(model, answer, best!.finishReason);
  }
}

/** Builds the request and the stops for sampling and for beam search. */
function begin(model: Answerer, { requests }: PlannedDocument, options: DecodingOptions) {
  const [own] = requests as [TextRequest];
  const asked = { ...own, maxTokens: options.maxTokens ?? own.maxTokens };
  const stops = options.eosText ? [...own.stop, options.eosText] : own.stop;
  const request = {
    tokens: model.encoder.prompt(asked),
    maxTokens: asked.maxTokens,
    eosTokenIds: options.eosTokenIds,
  };
  return { request, stops };
}

function finish(
  { session: { tokenizer } }: Answerer,
  { planned, sample, temperature, tokens, stops }: Open,
  reason: FinishReason,
): Sample {
  const { task } = planned.document;
  const said = decodeCompletion(tokenizer, tokens, reason);
  return {
    ...keyOf(planned, sample),
    temperature,
    text: isCode(task) ? said : cutAtStops(said, stops),
    tokens: tokens.length,
    finish_reason: reason,
  };
}

/** Keeps what precedes the first stop string, then of that what precedes the second, and so on. */
export function cutAtStops(text: string, stops: readonly string[]): string {
  for (const stop of stops) {
    const at = stop === "" ? -1 : text.indexOf(stop);
    if (at >= 0) text = text.slice(0, at);
  }
  return text;
}
