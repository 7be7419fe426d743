/** Answers completion and chat requests: prompts are encoded, choices run, documents sent. */
import { DataError } from "../base/errors.ts";
import type { TokenConstraint } from "../generate/logit_rules.ts";
import type { TokenizerInfo } from "../tokenizer/types.ts";
import type { SchedulerEvent } from "../generate/request.ts";
import { hasStreamWeights } from "../model/config.ts";
import { Choice, type Delta, type EncodedPrompt } from "./choice.ts";
import { Documents } from "./documents.ts";
import { badField, toApiError } from "./errors.ts";
import { EventStream } from "./event_stream.ts";
import type { Recorder } from "./record.ts";
import { encodePrompts, promptModelOf, requireFitting, requireIds } from "./prompts.ts";
import type { ServeRequest } from "./request.ts";
import type { Job, ServedModel, Service } from "./service.ts";
import { ToolCallParser } from "./tool_calls.ts";
import { droppedNote, type ToolFormat, toolFormatOf, toolGrammar } from "./tools.ts";

/** Time between comments while nothing is generated yet. */
const COMMENT_MS = 5000;

/** Options of sending a response. */
export interface SendOptions {
  /** Aborts when the client has gone. */
  readonly signal: AbortSignal;
  /** Time after which a streaming client that reads nothing is disconnected. */
  readonly stallMs: number;
  /** Told of errors after the response has begun. */
  readonly onLateError: (error: unknown) => void;
  readonly recorder: Recorder;
}

/**
 * Runs a request; the response is whole, or a stream that has begun. `prompts` are those of a long
 * request, which were encoded on another thread.
 */
export async function answer(
  service: Service,
  request: ServeRequest,
  options: SendOptions,
  prompts?: readonly EncodedPrompt[],
): Promise<Response> {
  const candidates = service.candidates(request);
  // They share tokenizer, vocabulary and context.
  const [any] = candidates;
  if (!any || request.weights && !hasStreamWeights(any.session.config)) {
    throw badField("parscale.weights", "linear aggregation has no stream weights");
  }
  const promptModel = promptModelOf(any);
  requireIds("logit_bias", [...request.sampling.logitBias?.keys() ?? []], promptModel.vocabSize);
  requireIds("stop_token_ids", request.stopTokenIds, promptModel.vocabSize);
  for (const prompt of prompts ?? []) requireFitting(prompt, promptModel, request);
  const count = request.kind === "chat" ? 1 : request.prompts.length;
  // The queue is counted before any text is encoded.
  const job = service.accept(count * request.n);
  let isSent = false;
  try {
    const format = request.tools && formatOf(any.session.tokenizer);
    const toolNames = new Set(request.tools?.tools.map(({ name }) => name));
    const encoded = prompts ?? await encodePrompts(promptModel, request);
    const sequences = encoded.length * request.n;
    const constraints = await constraintsOf(any, request, format, sequences, options.signal);
    if (request.tools && constraints.length > 0) options.recorder.note = droppedNote(request.tools);
    const promptTokens = encoded.reduce((sum, { tokens }) => sum + tokens.length, 0);
    // From here to the start of its choices nothing is awaited: the next request finds them.
    const model = service.choose(candidates, { sequences, promptTokens });
    const seed = request.seed ?? crypto.getRandomValues(new Uint32Array(1))[0]!;
    const choices = encoded.flatMap((prompt, p) =>
      Array.from({ length: request.n }, (_, sample) => {
        const index = p * request.n + sample;
        const constraint = constraints[index];
        const facts = { prompt: prompt.text, isParallel: request.tools?.isParallel };
        const parser = format && new ToolCallParser(format, toolNames, facts);
        return new Choice(model, request, prompt, { index, seed, constraint, parser });
      })
    );
    const counts = { model: model.name };
    service.metrics.count("prompt_tokens_total", counts, promptTokens);
    service.metrics.count("prefix_cache_queries_total", counts, promptTokens * request.n);
    options.recorder.start(model, choices);
    const documents = new Documents(request, model.name, model.session.config.streams);
    options.signal.throwIfAborted(); // the client may have gone meanwhile
    const response = request.stream
      ? answerStream(job, model, choices, documents, request, options)
      : await answerWhole(job, model, choices, documents, options);
    isSent = true;
    return response;
  } finally {
    if (!isSent) job[Symbol.dispose]();
  }
}

/** A constraint for every choice, with the mask of its first token known; none without a grammar. */
async function constraintsOf(
  { session }: ServedModel,
  { format: asked, tools }: ServeRequest,
  format: ToolFormat | undefined,
  count: number,
  signal: AbortSignal,
): Promise<readonly TokenConstraint[]> {
  try {
    const grammar = tools && format ? toolGrammar(tools, format) : asked;
    if (!grammar) return [];
    const all = Array.from({ length: count }, () => session.constraint(grammar, signal));
    return await Promise.all(all);
  } catch (error) {
    if (!(error instanceof DataError)) throw error;
    const param = tools ? "tools" : "response_format";
    throw badField(param, `\`${param}\`: ${error.message}`);
  }
}

/** @throws {ApiError} 400 where the model knows no tools */
function formatOf({ chatTemplate, toolTemplate }: TokenizerInfo): ToolFormat {
  const format = toolFormatOf(toolTemplate ?? chatTemplate);
  if (format) return format;
  throw badField(
    "tools",
    "the chat template of this model has no tools: `serve --chat-template` takes another one",
  );
}

async function answerWhole(
  job: Job,
  model: ServedModel,
  choices: readonly Choice[],
  documents: Documents,
  { signal, recorder }: SendOptions,
): Promise<Response> {
  using _job = job;
  const deltas = new Map(choices.map((choice): [Choice, Delta[]] => [choice, []]));
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  let open = choices.length;
  const gone = () => reject(new DOMException("the client has gone", "AbortError"));
  signal.addEventListener("abort", gone);
  for (const choice of choices) {
    job.start(model, choice.generation, (event) => {
      if (event.kind === "failed") return reject(event.error);
      if (event.kind === "token") recorder.tokenCame();
      const delta = choice.accept(event);
      if (delta) deltas.get(choice)!.push(delta);
      if (event.kind === "done" && --open === 0) resolve();
    });
  }
  await promise.finally(() => signal.removeEventListener("abort", gone));
  return Response.json(documents.whole(choices, deltas));
}

function answerStream(
  job: Job,
  model: ServedModel,
  choices: readonly Choice[],
  documents: Documents,
  request: ServeRequest,
  { stallMs, onLateError, recorder }: SendOptions,
): Response {
  recorder.isStreaming = true;
  let open = choices.length;
  const length = choices.reduce((most, { prompt }) => Math.max(most, prompt.tokens.length), 0);
  const waiting = setInterval(
    () => stream.comment(`prefill ${job.progress}/${length}`),
    COMMENT_MS,
  );
  const stream: EventStream = new EventStream(stallMs, () => {
    clearInterval(waiting);
    job[Symbol.dispose]();
    recorder.end(open === 0 ? 200 : 499);
  });
  const listen = (choice: Choice) => (event: SchedulerEvent) => {
    if (event.kind === "failed") {
      onLateError(event.error);
      recorder.end(500);
      stream.send(toApiError(event.error).document);
      return stream.close();
    }
    if (event.kind === "token") {
      clearInterval(waiting);
      recorder.tokenCame();
    }
    const chunk = documents.chunk(choice, choice.accept(event));
    if (chunk) stream.send(chunk);
    if (event.kind !== "done" || --open > 0) return;
    if (request.includeUsage) stream.send(documents.usageChunk(choices));
    stream.done();
  };
  for (const choice of choices) job.start(model, choice.generation, listen(choice));
  return new Response(stream.body, {
    headers: {
      "content-type": "text/event-stream; charset=utf-8",
      "cache-control": "no-cache",
      // Keeps nginx from collecting frames.
      "x-accel-buffering": "no",
    },
  });
}
