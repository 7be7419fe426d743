/** A worker for long bodies; see `long_bodies.ts`. */
/// <reference no-default-lib="true" />
/// <reference lib="deno.worker" />
import { exactJsonText, mergeExact, parseExactJson } from "../base/exact_json.ts";
import { answerQuestions } from "../base/thread_worker.ts";
import { openTokenizer } from "../tokenizer/tokenizer.ts";
import type { Tokenizer, TokenizerInfo } from "../tokenizer/types.ts";
import { ParscaleError } from "../base/errors.ts";
import { ApiError, badField, toApiError } from "./errors.ts";
import type { LongAnswer, LongBody, PlainModel } from "./long_bodies.ts";
import { detokenize, encodePrompts, type PromptModel, readBody, tokenize } from "./prompts.ts";
import { readRequest } from "./request.ts";

/** Most characters of the fields besides the prompt: the server's own thread reads them again. */
const MAX_REST = 1 << 19;

/** The tokenizer in use; another folder's takes its place. */
let opened: { readonly directory: string; readonly tokenizer: Promise<Tokenizer> } | undefined;

async function modelOf(
  { templates, templateVariables: text, ...sizes }: PlainModel,
): Promise<PromptModel> {
  const { directory } = templates;
  if (opened?.directory !== directory) {
    opened = { directory, tokenizer: openTokenizer(directory) };
  }
  const tokenizer = await opened.tokenizer, { namedTokens } = tokenizer;
  const read = text === undefined ? undefined : parseExactJson(text);
  const templateVariables = read as TokenizerInfo["templateVariables"];
  const own = { ...templates, namedTokens, templateVariables } as TokenizerInfo;
  return { tokenizer, templates: own, ...sizes };
}

async function answer({ use, bytes, model: plain }: LongBody): Promise<LongAnswer> {
  const body = readBody(bytes);
  const model = await modelOf(plain);
  if (use === "tokenize") return { document: await tokenize(model, body) };
  if (use === "detokenize") return { document: detokenize(model, body) };
  const request = readRequest(use, body);
  const prompts = await encodePrompts(model, request);
  // Prompts are here; what stands for them is short.
  const short = use === "chat"
    ? { messages: [{ role: "user" }] }
    : { prompt: prompts.map(() => "") };
  const others = mergeExact(body as Record<string, unknown>, short);
  const rest = exactJsonText(others);
  if (rest.length <= MAX_REST) return { rest, prompts };
  const lengthOf = (name: string) => exactJsonText(others[name]).length;
  const longest = Object.keys(others).reduce((a, b) => lengthOf(b) > lengthOf(a) ? b : a);
  throw badField(
    longest,
    `the fields besides the prompt have ${rest.length} characters, at most ${MAX_REST} are allowed`,
  );
}

answerQuestions(
  async (body: LongBody): Promise<LongAnswer> => {
    try {
      return await answer(body);
    } catch (error) {
      if (!(error instanceof ApiError || error instanceof ParscaleError)) throw error;
      const { status, message, options } = toApiError(error);
      return { status, message, options };
    }
  },
  (reply) => "document" in reply ? [reply.document.buffer] : [],
);
