/**
 * Makes token ids of what a body says, and text of ids: all that takes as long as the body is.
 *
 * It runs on the server's own thread for short bodies, and on another for long ones; see
 * `long_bodies.ts`.
 */
import { isUtf8 } from "node:buffer";
import { parseExactJson } from "../base/exact_json.ts";
import { jsonDepth, jsonValue } from "../base/files.ts";
import type { Tokenizer, TokenizerInfo } from "../tokenizer/types.ts";
import type { EncodedPrompt } from "./choice.ts";
import { ApiError, badField } from "./errors.ts";
import { Fields } from "./fields.ts";
import { readRequest, renderRequest, type ServeRequest } from "./request.ts";
import { requireKnownFields } from "./request_fields.ts";
import type { ServedModel } from "./service.ts";

/** Deepest nesting of JSON in a request. */
const MAX_DEPTH = 64;

/** Tokenizer of a model, and what its prompts must fit. */
export interface PromptModel {
  readonly tokenizer: Pick<Tokenizer, "encode" | "markSpecial" | "decode" | "longestToken">;
  readonly templates: TokenizerInfo;
  /** Most tokens of prompt and answer together. */
  readonly maxLength: number;
  /** Ids from here on are refused. */
  readonly vocabSize: number;
}

/** Returns the tokenizer of a served model, and what its prompts must fit. */
export function promptModelOf({ session, maxLength }: ServedModel): PromptModel {
  const { tokenizer, config: { vocabSize } } = session;
  return { tokenizer, templates: tokenizer, maxLength, vocabSize };
}

/** Reads a body of limited depth. @throws {ApiError} 400 for other text */
export function readBody(bytes: Uint8Array): unknown {
  if (!isUtf8(bytes)) throw new ApiError(400, "the request body is not UTF-8 text");
  const text = new TextDecoder().decode(bytes);
  if (jsonDepth(text) > MAX_DEPTH) {
    throw new ApiError(400, `the request body nests JSON deeper than ${MAX_DEPTH} levels`);
  }
  const value = jsonValue(text, parseExactJson);
  if (value === undefined) throw new ApiError(400, "the request body is not valid JSON");
  return value;
}

/** Document of `POST /tokenize`, in the layout that lm-evaluation-harness asks for. */
export async function tokenize(
  { tokenizer, templates, maxLength }: PromptModel,
  body: unknown,
): Promise<Uint8Array<ArrayBuffer>> {
  const fields = new Fields(body);
  requireKnownFields("tokenize", fields);
  let text = fields.text("prompt");
  // The frame is added unless it is unwanted, as when a prompt is completed.
  let unframed = !fields.boolean("add_special_tokens", true);
  if (text === undefined && fields.get("messages") !== undefined) {
    unframed = true; // a template writes out the frame
    const { add_special_tokens: _, ...others } = body as Record<string, unknown>;
    text = await renderRequest(templates, tokenizer, readRequest("chat", others));
  }
  if (text === undefined) throw badField("prompt", "`prompt` or `messages` is missing");
  const tokens = tokenizer.encode(text, unframed ? { frame: false } : {});
  return jsonBytes({ tokens, count: tokens.length, max_model_len: maxLength });
}

/** Most ids that are decoded at once: each may be a token of a hundred bytes. */
const MAX_IDS = 1 << 18;

/** Document of `POST /detokenize`. */
export function detokenize(
  { tokenizer, vocabSize }: PromptModel,
  body: unknown,
): Uint8Array<ArrayBuffer> {
  const fields = new Fields(body);
  requireKnownFields("detokenize", fields);
  const tokens = fields.get("tokens");
  const isId = (id: unknown) =>
    Number.isInteger(id) && (id as number) >= 0 && (id as number) < vocabSize;
  if (!Array.isArray(tokens) || !tokens.every(isId)) {
    throw badField("tokens", `\`tokens\` needs a list of ids below ${vocabSize}`);
  }
  if (tokens.length > MAX_IDS) {
    throw badField("tokens", `\`tokens\` has ${tokens.length} ids, at most ${MAX_IDS} are allowed`);
  }
  return jsonBytes({ prompt: tokenizer.decode(tokens) });
}

function jsonBytes(document: unknown): Uint8Array<ArrayBuffer> {
  return new TextEncoder().encode(JSON.stringify(document));
}

/** Encodes the prompts of a request and checks that they fit the context. */
export async function encodePrompts(
  model: PromptModel,
  request: ServeRequest,
): Promise<EncodedPrompt[]> {
  const { tokenizer, templates } = model;
  const encode = (text: string, options = {}): EncodedPrompt => {
    requireShort(text, model, request);
    const prompt = { text, tokens: tokenizer.encode(text, options) };
    requireFitting(prompt, model, request);
    return prompt;
  };
  if (request.kind === "chat") {
    // A template writes out the tokens that frame a text.
    const text = await renderRequest(templates, tokenizer, request);
    return [encode(text, { frame: false, isMarked: request.isContentPlain })];
  }
  return request.prompts.map((prompt) => {
    if (typeof prompt === "string") return encode(prompt, request.isFramed ? {} : { frame: false });
    requireFitting({ text: "", tokens: prompt }, model, request);
    return { text: tokenizer.decode(prompt), tokens: prompt };
  });
}

/** Refuses a text that is too long for the context whatever its tokens are, before it is encoded. */
function requireShort(
  text: string,
  { tokenizer, maxLength }: PromptModel,
  request: ServeRequest,
): void {
  const most = tokenizer.longestToken * maxLength;
  if (text.length <= most) return;
  const bytes = new TextEncoder().encode(text).length;
  // NFC makes three bytes of nine at most.
  const least = Math.ceil(bytes / (bytes === text.length ? 1 : 3) / tokenizer.longestToken);
  if (least > maxLength) throw tooLong(request, `at least ${least}`, maxLength);
}

/** Refuses a prompt without tokens, with ids that the model lacks, or longer than the context. */
export function requireFitting(
  { tokens }: EncodedPrompt,
  { maxLength, vocabSize }: Pick<PromptModel, "maxLength" | "vocabSize">,
  request: ServeRequest,
): void {
  const { length } = tokens, param = paramOf(request);
  if (length === 0) throw badField(param, `\`${param}\` has no tokens`);
  if (length > maxLength) throw tooLong(request, String(length), maxLength);
  requireIds(param, tokens, vocabSize);
}

/** Refuses ids that the model lacks. */
export function requireIds(param: string, ids: readonly number[], vocabSize: number): void {
  const wrong = ids.find((id) => !(Number.isInteger(id) && id >= 0 && id < vocabSize));
  if (wrong === undefined) return;
  throw badField(param, `token id ${wrong} is not in the vocabulary of ${vocabSize}`);
}

function paramOf({ kind }: ServeRequest): string {
  return kind === "chat" ? "messages" : "prompt";
}

function tooLong(request: ServeRequest, tokens: string, maxLength: number): ApiError {
  const message = `the prompt has ${tokens} tokens, the model's context is ${maxLength}`;
  return badField(paramOf(request), message, "context_length_exceeded");
}
