/** Answers completion and chat requests: prompts are encoded, choices run, documents sent. */
import { type ChatMessage, renderChat } from "../tokenizer/chat.ts";
import type { Tokenizer } from "../tokenizer/types.ts";
import type { SchedulerEvent } from "../generate/request.ts";
import { hasStreamWeights } from "../model/config.ts";
import { Choice, type Delta, type EncodedPrompt } from "./choice.ts";
import { Documents } from "./documents.ts";
import { badField, toApiError } from "./errors.ts";
import { EventStream } from "./event_stream.ts";
import type { Prompt, ServeRequest } from "./request.ts";
import type { Job, ServedModel, Service } from "./service.ts";
import { wholeResponse } from "./whole_response.ts";

/** Time between comments while nothing is generated yet. */
const COMMENT_MS = 5000;

/** How a response is sent. */
export interface SendOptions {
  /** Aborts when the client has gone. */
  readonly signal: AbortSignal;
  /** A streaming client that reads nothing for so long is cut. */
  readonly stallMs: number;
  /** Told of errors after the response has begun. */
  readonly onLateError: (error: unknown) => void;
}

/** Runs a request; the response is whole, or a stream that has begun. */
export async function answer(
  service: Service,
  request: ServeRequest,
  options: SendOptions,
): Promise<Response> {
  const model = service.find(request.model, request.streams);
  if (request.weights && !hasStreamWeights(model.engine.config)) {
    throw badField("parscale.weights", "linear aggregation has no stream weights");
  }
  const prompts = request.kind === "chat" ? 1 : request.prompts.length;
  // The queue is counted before any text is encoded.
  const job = service.accept(prompts * request.n);
  let isSent = false;
  try {
    const encoded = await encodePrompts(model, request);
    const seed = request.seed ?? crypto.getRandomValues(new Uint32Array(1))[0]!;
    const choices = encoded.flatMap((prompt, p) =>
      Array.from({ length: request.n }, (_, sample) => {
        const place = { index: p * request.n + sample, sample, seed };
        return new Choice(model, request, prompt, place);
      })
    );
    const counts = { model: model.name };
    const tokens = encoded.reduce((sum, { tokens }) => sum + tokens.length, 0);
    service.metrics.count("prompt_tokens_total", counts, tokens);
    service.metrics.count("prefix_cache_queries_total", counts, tokens * request.n);
    const documents = new Documents(request, model.name);
    const response = request.stream
      ? answerStream(job, model, choices, documents, request, options)
      : await answerWhole(job, model, choices, documents, options);
    isSent = true;
    return response;
  } finally {
    if (!isSent) job[Symbol.dispose]();
  }
}

function answerWhole(
  job: Job,
  model: ServedModel,
  choices: readonly Choice[],
  documents: Documents,
  { signal, onLateError }: SendOptions,
): Promise<Response> {
  const deltas = new Map(choices.map((choice): [Choice, Delta[]] => [choice, []]));
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  let open = choices.length;
  const gone = () => reject(new DOMException("the client has gone", "AbortError"));
  if (signal.aborted) gone();
  signal.addEventListener("abort", gone);
  for (const choice of choices) {
    job.start(model, choice.generation, (event) => {
      if (event.kind === "failed") return reject(event.error);
      const delta = choice.accept(event);
      if (delta) deltas.get(choice)!.push(delta);
      if (event.kind === "done" && --open === 0) resolve();
    });
  }
  const document = promise.then(() => documents.whole(choices, deltas)).finally(() => {
    signal.removeEventListener("abort", gone);
    job[Symbol.dispose]();
  });
  return wholeResponse({ document, onGone: gone, onLateError });
}

function answerStream(
  job: Job,
  model: ServedModel,
  choices: readonly Choice[],
  documents: Documents,
  request: ServeRequest,
  { stallMs, onLateError }: SendOptions,
): Response {
  let open = choices.length;
  const length = Math.max(...choices.map(({ prompt }) => prompt.tokens.length));
  const waiting = setInterval(
    () => stream.comment(`prefill ${job.progress}/${length}`),
    COMMENT_MS,
  );
  const stream: EventStream = new EventStream({
    stallMs,
    onEnd() {
      clearInterval(waiting);
      job[Symbol.dispose]();
    },
  });
  const listen = (choice: Choice) => (event: SchedulerEvent) => {
    if (event.kind === "failed") {
      onLateError(event.error);
      stream.send(toApiError(event.error).document);
      return stream.close();
    }
    if (event.kind === "token") clearInterval(waiting);
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

/** Encodes the prompts of a request and checks that they fit the context. */
async function encodePrompts(model: ServedModel, request: ServeRequest): Promise<EncodedPrompt[]> {
  const { tokenizer, maxLength, engine: { config } } = model;
  const encode = (prompt: Prompt): EncodedPrompt =>
    typeof prompt === "string" ? { text: prompt, tokens: tokenizer.encode(prompt) } : {
      text: tokenizer.decode(prompt.filter((id) => isId(id, config.vocabSize))),
      tokens: prompt,
    };
  const prompts = request.kind === "chat"
    ? [await encodeChat(tokenizer, request.messages)]
    : request.prompts.map(encode);
  const param = request.kind === "chat" ? "messages" : "prompt";
  for (const { tokens } of prompts) {
    if (tokens.length === 0) throw badField(param, `\`${param}\` has no tokens`);
    const wrong = tokens.find((id) => !isId(id, config.vocabSize));
    if (wrong !== undefined) {
      throw badField(param, `token id ${wrong} is not in the vocabulary of ${config.vocabSize}`);
    }
    if (tokens.length <= maxLength) continue;
    throw badField(
      param,
      `the prompt has ${tokens.length} tokens, the model's context is ${maxLength}`,
      "context_length_exceeded",
    );
  }
  return prompts;
}

/** A template writes out the tokens that frame a text. */
async function encodeChat(
  tokenizer: Tokenizer,
  messages: readonly ChatMessage[],
): Promise<EncodedPrompt> {
  const text = await renderChat(tokenizer, messages);
  return { text, tokens: tokenizer.encode(text, { frame: false }) };
}

function isId(id: number, vocabSize: number): boolean {
  return Number.isInteger(id) && id >= 0 && id < vocabSize;
}
