/** Reads completion and chat requests; `request_fields.ts` says which fields they may have. */
import type { SamplingOptions } from "../base/sampling.ts";
import { exactJsonText, parseExactJson } from "../base/exact_json.ts";
import { isObject, jsonValue, show } from "../base/files.ts";
import { type ChatMessage, type ChatOptions, renderChat } from "../tokenizer/chat.ts";
import { contentText, textParts } from "../tokenizer/content.ts";
import type { Tokenizer, TokenizerInfo } from "../tokenizer/types.ts";
import { ApiError, badField } from "./errors.ts";
import { Fields } from "./fields.ts";
import { requireKnownFields } from "./request_fields.ts";
import { readTools, requireCalls, type ToolRequest } from "./tools.ts";

/** A text or token ids. */
export type Prompt = string | readonly number[];

/** A request in our own terms. */
export interface ServeRequest {
  readonly kind: "completion" | "chat";
  /** Undefined: the only one, or the one with `streams`. */
  readonly model: string | undefined;
  /** Of a completion. */
  readonly prompts: readonly Prompt[];
  /** Of a chat. */
  readonly messages: readonly ChatMessage[];
  /** Rendering of the messages of a chat. */
  readonly rendering: Omit<ChatOptions, "tools">;
  /** Undefined: the rest of the context. */
  readonly maxTokens: number | undefined;
  readonly sampling: SamplingOptions;
  /** Choices per prompt. */
  readonly n: number;
  readonly stop: readonly string[];
  /** Tokens that end the answer; their text is part of it, unless they are special. */
  readonly stopTokenIds: readonly number[];
  /** Functions that an answer may call. */
  readonly tools: ToolRequest | undefined;
  /** JSON Schema of the answer. */
  readonly format: { readonly schema: unknown } | undefined;
  readonly seed: number | undefined;
  readonly echo: boolean;
  /** True if prompts get the tokens that frame a text, such as that of its start. */
  readonly isFramed: boolean;
  /** Number of likeliest tokens whose log-probabilities the answer has. */
  readonly topLogprobs: number | undefined;
  readonly stream: boolean;
  readonly includeUsage: boolean;
  readonly ignoreEos: boolean;
  /** Streams that the model is to have; `auto` takes as many as the load allows. */
  readonly streams: number | "auto" | undefined;
  /** True to return aggregation weights per token. */
  readonly weights: boolean;
  /** True if special tokens that messages and tools write out are text. */
  readonly isContentPlain: boolean;
}

/** Most stop strings, and most characters of all together: each token's text is compared with them. */
const STOP_LIMITS = { count: 1024, characters: 8192 };

const PENALTIES = { min: -2, max: 2 };

/** Most tokens with a bias, or that end an answer. */
const MAX_BIASES = 1024;

/** Reads a body. @throws {ApiError} 400 for a field or value that is not supported */
export function readRequest(kind: ServeRequest["kind"], body: unknown): ServeRequest {
  const fields = new Fields(body);
  const n = fields.integer("n", { min: 1, max: 128 }) ?? 1;
  requireKnownFields(kind, fields, n);
  const stream = fields.boolean("stream");
  if (!stream && fields.get("stream_options") !== undefined) {
    throw badField("stream_options", "`stream_options` needs `stream` to be true");
  }
  const format = readFormat(fields);
  if (format && fields.boolean("ignore_eos")) throw exclusive("ignore_eos", "response_format");
  const tools = kind === "chat" ? readTools(fields) : undefined;
  if (tools && fields.boolean("ignore_eos")) throw exclusive("ignore_eos", "tools");
  if (format && tools) throw exclusive("response_format", "tools");
  const forChats = kind === "chat" ? ["plain_content"] : [];
  const own = fields.object("parscale", ["streams", "weights", ...forChats]);
  const topP = fields.number("top_p", 1, { min: 0, max: 1 });
  // −1 is vLLM's word for all tokens.
  const topK = Math.max(0, fields.integer("top_k", { min: -1, max: 2 ** 31 }) ?? 0);
  return {
    kind,
    model: fields.text("model"),
    prompts: kind === "completion" ? readPrompts(fields) : [],
    messages: kind === "chat" ? readMessages(fields.get("messages")) : [],
    rendering: kind === "chat" ? readRendering(fields) : {},
    maxTokens: readMaxTokens(kind, fields),
    sampling: {
      temperature: fields.number("temperature", 1, { min: 0, max: 2 }),
      // 0 leaves the most likely token alone.
      topP: topP || 1,
      topK: topP === 0 ? 1 : topK,
      minP: fields.number("min_p", 0, { min: 0, max: 1 }),
      repetitionPenalty: fields.number("repetition_penalty", 1, { above: 0, max: 1e6 }),
      frequencyPenalty: fields.number("frequency_penalty", 0, PENALTIES),
      presencePenalty: fields.number("presence_penalty", 0, PENALTIES),
      logitBias: readLogitBias(fields.get("logit_bias") ?? {}),
    },
    n,
    stop: fields.texts("stop", STOP_LIMITS),
    stopTokenIds: readTokenIds(fields, "stop_token_ids"),
    tools,
    format,
    seed: readSeed(fields),
    echo: kind === "completion" && fields.boolean("echo"),
    isFramed: kind === "completion" && fields.boolean("add_special_tokens", true),
    topLogprobs: kind === "chat"
      ? readChatLogprobs(fields)
      : fields.integer("logprobs", { min: 0, max: 20 }),
    stream,
    includeUsage: fields.object("stream_options", ["include_usage", "continuous_usage_stats"])
      .boolean("include_usage"),
    ignoreEos: fields.boolean("ignore_eos"),
    streams: readStreams(own),
    weights: own.boolean("weights"),
    isContentPlain: own.boolean("plain_content"),
  };
}

function exclusive(field: string, other: string): ApiError {
  return badField(field, `\`${field}\` and \`${other}\` exclude each other`);
}

function readStreams(fields: Fields): ServeRequest["streams"] {
  const value = fields.get("streams");
  if (value === undefined || value === "auto") return value;
  if (Number.isInteger(value) && (value as number) >= 1) return value as number;
  const message = `\`parscale.streams\` needs a number of at least 1, or "auto", not ${
    show(value)
  }`;
  throw badField("parscale.streams", message);
}

/** Biases from −100 to 100 by token id; ids are checked against the vocabulary where it is known. */
function readLogitBias(value: unknown): ReadonlyMap<number, number> {
  if (!isObject(value)) throw badField("logit_bias", "`logit_bias` needs an object");
  const entries = Object.entries(value);
  if (entries.length > MAX_BIASES) {
    const message =
      `\`logit_bias\` has ${entries.length} tokens, at most ${MAX_BIASES} are allowed`;
    throw badField("logit_bias", message);
  }
  return new Map(entries.map(([id, bias]) => {
    if (/^\d+$/.test(id) && typeof bias === "number" && Math.abs(bias) <= 100) {
      return [Number(id), bias];
    }
    const entry = `${show(id)}: ${show(bias)}`;
    throw badField(
      "logit_bias",
      `\`logit_bias\` needs biases from -100 to 100 by id, not ${entry}`,
    );
  }));
}

/** The schema of the answer, under the names of OpenAI's API and of vLLM. */
function readFormat(fields: Fields): ServeRequest["format"] {
  const given = FORMATS.flatMap(([name, read]) => {
    const value = fields.get(name);
    return value === undefined ? [] : [[name, read(value)] as const];
  });
  const [first, second] = given;
  if (first && second) throw exclusive(first[0], second[0]);
  return first?.[1];
}

const FORMATS: readonly [name: string, read: (value: unknown) => ServeRequest["format"]][] = [
  ["response_format", readResponseFormat],
  ["guided_json", readGuidedJson],
  ["structured_outputs", readStructuredOutputs],
];

/** Any JSON object, or JSON by a schema; the schema itself is checked where it becomes a grammar. */
function readResponseFormat(value: unknown): ServeRequest["format"] {
  if (isObject(value) && value.type === "text") return undefined;
  // The schema of an object stands there for llama.cpp, Together and Groq.
  if (isObject(value) && value.type === "json_object") {
    return { schema: value.schema ?? { type: "object" } };
  }
  if (isObject(value) && value.type === "json_schema" && isObject(value.json_schema)) {
    const { schema = {} } = value.json_schema;
    return { schema };
  }
  const types = '"text", "json_object", or "json_schema" with `json_schema.schema`';
  const message = `\`response_format\` needs type ${types}, not ${show(value)}`;
  throw badField("response_format", message);
}

/** A schema, or its JSON text. */
function readGuidedJson(value: unknown): ServeRequest["format"] {
  const schema = typeof value === "string" ? jsonValue(value, parseExactJson) : value;
  if (isObject(schema)) return { schema };
  throw badField("guided_json", `\`guided_json\` needs a JSON Schema, not ${show(value)}`);
}

function readStructuredOutputs(value: unknown): ServeRequest["format"] {
  const { json, ...others } = isObject(value) ? value : {};
  const other = Object.keys(others).find((name) => (others[name] ?? null) !== null);
  if (json !== undefined && other === undefined) return readGuidedJson(json);
  const message = `\`structured_outputs\` needs \`json\`, a JSON Schema, and nothing else`;
  throw badField("structured_outputs", message);
}

/** Seeds are those of 64 bits, taken modulo 2^53, so that negative ones, too, are seeds. */
function readSeed(fields: Fields): number | undefined {
  const seed = fields.integer("seed", { min: -(2 ** 63), max: 2 ** 64 });
  if (seed === undefined) return undefined;
  const rest = seed % 2 ** 53;
  return rest < 0 ? rest + 2 ** 53 : rest + 0; // −0 is 0
}

function readTokenIds(fields: Fields, name: string): number[] {
  const value = fields.get(name) ?? [];
  const areIds = Array.isArray(value) && value.every((id) => Number.isInteger(id) && id >= 0);
  if (areIds && value.length <= MAX_BIASES) return value;
  throw badField(name, `\`${name}\` needs a list of at most ${MAX_BIASES} token ids`);
}

function readMaxTokens(kind: ServeRequest["kind"], fields: Fields): number | undefined {
  const range = { min: kind === "completion" ? 0 : 1, max: 2 ** 31 };
  const chat = kind === "chat" ? fields.integer("max_completion_tokens", range) : undefined;
  return chat ?? fields.integer("max_tokens", range) ?? (kind === "completion" ? 16 : undefined);
}

function readChatLogprobs(fields: Fields): number | undefined {
  const top = fields.integer("top_logprobs", { min: 0, max: 20 });
  if (fields.boolean("logprobs")) return top ?? 0;
  if (top === undefined || top === 0) return undefined;
  throw badField("top_logprobs", "`top_logprobs` needs `logprobs` to be true");
}

/** A string, ids, or a list of either. */
function readPrompts(fields: Fields): Prompt[] {
  const value = fields.get("prompt");
  const isIds = (one: unknown) => Array.isArray(one) && one.every(Number.isInteger);
  const refused = badField(
    "prompt",
    `\`prompt\` needs a string, token ids, or a list of either, not ${show(value)}`,
  );
  if (typeof value === "string") return [value];
  if (!Array.isArray(value) || value.length === 0) throw refused;
  if (isIds(value)) return [value];
  if (value.length > 2048) throw badField("prompt", "`prompt` has more than 2048 entries");
  if (value.every((one) => typeof one === "string" || isIds(one))) return value;
  throw refused;
}

/** Messages whose content is a string or a list of text parts. */
function readMessages(value: unknown): ChatMessage[] {
  if (!Array.isArray(value) || value.length === 0) {
    throw badField("messages", "`messages` needs a list of at least one message");
  }
  return value.map((message, i) => {
    const at = `messages[${i}]`;
    if (!isObject(message) || typeof message.role !== "string") {
      throw badField(at, `\`${at}\` needs a role and content`);
    }
    const { role, content } = message, isAbsent = (content ?? null) === null;
    if (!isAbsent && !textParts(content)) {
      throw badField(at, `\`${at}.content\` has a part that is not text`);
    }
    // An answer that only calls tools has none.
    const read = { ...message, role, ...(isAbsent && role !== "assistant" && { content: "" }) };
    requireCalls(read, at);
    return read;
  });
}

/** Rendering of messages as a prompt, by the fields that vLLM and transformers have for it. */
function readRendering(fields: Fields): ServeRequest["rendering"] {
  const continueFinalMessage = fields.boolean("continue_final_message");
  const addGenerationPrompt = fields.boolean("add_generation_prompt", !continueFinalMessage);
  if (continueFinalMessage && addGenerationPrompt) {
    throw exclusive("continue_final_message", "add_generation_prompt");
  }
  const variables = fields.get("chat_template_kwargs") ?? {};
  if (!isObject(variables)) {
    throw badField("chat_template_kwargs", "`chat_template_kwargs` needs an object");
  }
  if (fields.get("enable_thinking") === undefined) {
    return { continueFinalMessage, addGenerationPrompt, variables };
  }
  const enable_thinking = fields.boolean("enable_thinking");
  if ((variables.enable_thinking ?? enable_thinking) !== enable_thinking) {
    throw exclusive("enable_thinking", "chat_template_kwargs.enable_thinking");
  }
  return {
    continueFinalMessage,
    addGenerationPrompt,
    variables: { ...variables, enable_thinking },
  };
}

/** Text of a chat with its tools, as the template writes them, and with marks where content is plain. */
export function renderRequest(
  info: TokenizerInfo,
  tokenizer: Pick<Tokenizer, "markSpecial">,
  { messages, tools, rendering, isContentPlain }: ServeRequest,
): Promise<string> {
  const given = { messages, tools: tools?.tools.map(({ given }) => given) };
  const read = isContentPlain ? withMarks(given, tokenizer) : given;
  return renderChat(info, read.messages, {
    ...rendering,
    ...(read.tools && { tools: read.tools }),
  });
}

/** Marks special tokens in all texts; parts of a content are joined first, as two may make one token. */
function withMarks<T extends { readonly messages: readonly ChatMessage[] }>(
  given: T,
  tokenizer: Pick<Tokenizer, "markSpecial">,
): T {
  const messages = given.messages.map((message) =>
    Array.isArray(message.content) ? { ...message, content: contentText(message.content) } : message
  );
  return parseExactJson(tokenizer.markSpecial(exactJsonText({ ...given, messages }))) as T;
}
