/**
 * Reads completion and chat requests: which fields are honoured, ignored, or refused.
 *
 * A field whose absence would change the result is refused unless it is neutral; all others that the
 * server does not know are ignored.
 */
import type { SamplingOptions } from "../base/sampling.ts";
import { isObject, show } from "../base/files.ts";
import { type ChatMessage, type ChatOptions, renderChat } from "../tokenizer/chat.ts";
import type { TokenizerInfo } from "../tokenizer/types.ts";
import { ApiError, badField } from "./errors.ts";
import { Fields } from "./fields.ts";
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
  /** Functions that an answer may call. */
  readonly tools: ToolRequest | undefined;
  /** JSON Schema of the answer. */
  readonly format: { readonly schema: unknown } | undefined;
  readonly seed: number | undefined;
  readonly echo: boolean;
  /** Number of likeliest tokens whose log-probabilities the answer has. */
  readonly topLogprobs: number | undefined;
  readonly stream: boolean;
  readonly includeUsage: boolean;
  readonly ignoreEos: boolean;
  /** Streams that the model is to have; `auto` takes as many as the load allows. */
  readonly streams: number | "auto" | undefined;
  /** True to return aggregation weights per token. */
  readonly weights: boolean;
}

const COMMON = [
  "model",
  "max_tokens",
  "temperature",
  "top_p",
  "top_k",
  "min_p",
  "n",
  "stop",
  "seed",
  "repetition_penalty",
  "frequency_penalty",
  "presence_penalty",
  "logit_bias",
  "response_format",
  "logprobs",
  "stream",
  "stream_options",
  "ignore_eos",
  "parscale",
];
const TOOL_FIELDS = ["tools", "tool_choice", "parallel_tool_calls"];
const RENDERING_FIELDS = [
  "add_generation_prompt",
  "continue_final_message",
  "chat_template_kwargs",
  "enable_thinking",
];
const HONOURED = {
  completion: [...COMMON, "prompt", "echo"],
  chat: [
    ...[...COMMON, "messages", "max_completion_tokens", "top_logprobs"],
    ...[...TOOL_FIELDS, ...RENDERING_FIELDS],
  ],
};

/** Without effect on the text. */
const IGNORED = [
  "user",
  "metadata",
  "store",
  "service_tier",
  "prompt_cache_key",
];

/** Values that change nothing; `n` stands for the number of choices. */
const NEUTRAL: Readonly<Record<string, (value: unknown, n: number) => boolean>> = {
  best_of: (value, n) => value === n,
  suffix: (value) => value === "",
  use_beam_search: (value) => value === false,
};

/** Most stop strings, and most characters of all together: each token's text is compared with them. */
const STOP_LIMITS = { count: 1024, characters: 8192 };

const PENALTIES = { min: -2, max: 2 };

/** Most tokens with a bias. */
const MAX_BIASES = 1024;

/** Reads a body; `onUnknown` is told the names of fields that are unknown and ignored. */
export function readRequest(
  kind: "completion" | "chat",
  body: unknown,
  onUnknown: (field: string) => void,
): ServeRequest {
  const fields = new Fields(body);
  const n = fields.integer("n", { min: 1, max: 128 }) ?? 1;
  for (const name of fields.names) {
    // Names that every object inherits: no client means them.
    if (name in Object.prototype) throw badField(name, `unknown field ${show(name)}`);
    const isNeutral = Object.hasOwn(NEUTRAL, name) ? NEUTRAL[name] : undefined;
    if (isNeutral && !isNeutral(fields.get(name), n)) {
      throw badField(name, `\`${name}\` is not supported: leave it out`, "unsupported_parameter");
    }
    if (!isNeutral && !HONOURED[kind].includes(name) && !IGNORED.includes(name)) onUnknown(name);
  }
  const stream = fields.boolean("stream");
  if (!stream && fields.get("stream_options") !== undefined) {
    throw badField("stream_options", "`stream_options` needs `stream` to be true");
  }
  const format = readResponseFormat(fields.get("response_format"));
  if (format && fields.boolean("ignore_eos")) throw exclusive("ignore_eos", "response_format");
  const tools = kind === "chat" ? readTools(fields) : undefined;
  if (tools && fields.boolean("ignore_eos")) throw exclusive("ignore_eos", "tools");
  if (format && tools) throw exclusive("response_format", "tools");
  const own = fields.object("parscale", ["streams", "weights"]);
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
      temperature: fields.number("temperature", 1, { min: 0 }),
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
    tools,
    format,
    seed: readSeed(fields),
    echo: kind === "completion" && fields.boolean("echo"),
    topLogprobs: kind === "chat"
      ? readChatLogprobs(fields)
      : fields.integer("logprobs", { min: 0, max: 20 }),
    stream,
    includeUsage: fields.object("stream_options", ["include_usage", "continuous_usage_stats"])
      .boolean("include_usage"),
    ignoreEos: fields.boolean("ignore_eos"),
    streams: readStreams(own),
    weights: own.boolean("weights"),
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

/** Any JSON object, or JSON by a schema; the schema itself is checked where it becomes a grammar. */
function readResponseFormat(value: unknown): ServeRequest["format"] {
  if (value === undefined || isObject(value) && value.type === "text") return undefined;
  if (isObject(value) && value.type === "json_object") return { schema: { type: "object" } };
  if (isObject(value) && value.type === "json_schema" && isObject(value.json_schema)) {
    const { schema = {} } = value.json_schema;
    return { schema };
  }
  const types = '"text", "json_object", or "json_schema" with `json_schema.schema`';
  const message = `\`response_format\` needs type ${types}, not ${show(value)}`;
  throw badField("response_format", message);
}

/** Seeds are those of 64 bits, taken modulo 2^53, so that negative ones, too, are seeds. */
function readSeed(fields: Fields): number | undefined {
  const seed = fields.integer("seed", { min: -(2 ** 63), max: 2 ** 64 });
  if (seed === undefined) return undefined;
  const rest = seed % 2 ** 53;
  return rest < 0 ? rest + 2 ** 53 : rest + 0; // −0 is 0
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
    const content = readContent(message.content, at);
    const read = { ...message, role: message.role, content };
    requireCalls(read, at);
    return read;
  });
}

function readContent(content: unknown, at: string): string {
  if (content === undefined || content === null) return "";
  if (typeof content === "string") return content;
  const parts = Array.isArray(content) ? content : [content];
  return parts.map((part) => {
    if (isObject(part) && part.type === "text" && typeof part.text === "string") return part.text;
    throw new ApiError(400, `\`${at}.content\` has a part that is not text`, { param: at });
  }).join("");
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

/** Text of a chat with its tools, as the template writes them. */
export function renderRequest(
  tokenizer: TokenizerInfo,
  { messages, tools, rendering }: ServeRequest,
): Promise<string> {
  const given = tools?.tools.map(({ given }) => given);
  return renderChat(tokenizer, messages, { ...rendering, ...(given && { tools: given }) });
}
