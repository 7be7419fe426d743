/**
 * Reads, renders and tokenizes long bodies on a thread of its own, one after another, so that a server
 * answers others meanwhile. Short ones go first, and every fourth is the oldest, so that none waits
 * for ever.
 */
import { exactJsonText, parseExactJson } from "../base/exact_json.ts";
import { LazyThread, Thread } from "../base/thread.ts";
import { TurnQueue } from "../base/turn_queue.ts";
import type { EncodedPrompt } from "./choice.ts";
import { ApiError, type ApiErrorOptions } from "./errors.ts";
import { readRequest, type ServeRequest } from "./request.ts";
import type { PromptModel } from "./prompts.ts";

/** Time without a body after which the thread ends. */
const IDLE_MS = 5000;

/** A body for the thread. */
export interface LongBody {
  readonly use: "tokenize" | "detokenize" | ServeRequest["kind"];
  readonly bytes: Uint8Array<ArrayBuffer>;
  readonly model: PlainModel;
}

/** A model as the thread needs it, which opens the tokenizer itself. */
export interface PlainModel extends Pick<PromptModel, "maxLength" | "vocabSize"> {
  readonly templates: {
    readonly directory: string;
    readonly chatTemplate: string | undefined;
    readonly toolTemplate: string | undefined;
  };
  /** JSON, in which numbers keep their form. */
  readonly templateVariables: string | undefined;
}

/** Answer of the thread: a document, a request without its prompts and these, or why it is refused. */
export type LongAnswer =
  | { readonly document: Uint8Array<ArrayBuffer> }
  | { readonly rest: string; readonly prompts: readonly EncodedPrompt[] }
  | { readonly status: number; readonly message: string; readonly options: ApiErrorOptions };

const thread = new LazyThread<LongBody, LongAnswer>(
  () => new Thread(new URL("./long_body_worker.ts", import.meta.url), "thread of long bodies"),
  IDLE_MS,
);

const turns = new TurnQueue();

/** Document of `/tokenize` or `/detokenize`. */
export async function documentOf(
  use: "tokenize" | "detokenize",
  bytes: Uint8Array<ArrayBuffer>,
  model: PromptModel,
  signal: AbortSignal,
): Promise<Uint8Array<ArrayBuffer>> {
  const answer = await ask({ use, bytes, model: plainOf(model) }, signal);
  return (answer as { readonly document: Uint8Array<ArrayBuffer> }).document;
}

/** A request and its prompts. */
export async function requestOf(
  use: ServeRequest["kind"],
  bytes: Uint8Array<ArrayBuffer>,
  model: PromptModel,
  signal: AbortSignal,
): Promise<{ readonly wanted: ServeRequest; readonly prompts: readonly EncodedPrompt[] }> {
  const answer = await ask({ use, bytes, model: plainOf(model) }, signal);
  const { rest, prompts } = answer as Extract<LongAnswer, { rest: string }>;
  return { wanted: readRequest(use, parseExactJson(rest)), prompts };
}

/** @throws {ApiError} for a body that the thread refuses, or the reason of the aborted signal */
async function ask(body: LongBody, signal: AbortSignal): Promise<LongAnswer> {
  const { buffer, length } = body.bytes; // which are empty once they are handed over
  const answer = await turns.take(() => length, () => thread.ask(body, [buffer]), signal);
  if (!("status" in answer)) return answer;
  throw new ApiError(answer.status, answer.message, answer.options);
}

function plainOf({ templates, maxLength, vocabSize }: PromptModel): PlainModel {
  const { directory, chatTemplate, toolTemplate, templateVariables } = templates;
  return {
    templates: { directory, chatTemplate, toolTemplate },
    templateVariables: templateVariables && exactJsonText(templateVariables),
    maxLength,
    vocabSize,
  };
}
