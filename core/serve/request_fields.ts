/**
 * Fields of request bodies: which are honoured, which have no effect on the answer, and which values of the
 * others ask for nothing. All else is refused by name, so that no field is ignored that would change an answer.
 */
import { show } from "../base/files.ts";
import { badField } from "./errors.ts";
import type { Fields } from "./fields.ts";

/** Kinds of request. */
export type RequestKind = "completion" | "chat" | "tokenize" | "detokenize";

const GENERATION = [
  "model",
  "max_tokens",
  "temperature",
  "top_p",
  "top_k",
  "min_p",
  "n",
  "stop",
  "stop_token_ids",
  "seed",
  "repetition_penalty",
  "frequency_penalty",
  "presence_penalty",
  "logit_bias",
  "response_format",
  "guided_json",
  "structured_outputs",
  "logprobs",
  "stream",
  "stream_options",
  "ignore_eos",
  "parscale",
];
const MESSAGES = [
  "messages",
  "tools",
  "tool_choice",
  "parallel_tool_calls",
  "add_generation_prompt",
  "continue_final_message",
  "chat_template_kwargs",
  "enable_thinking",
];

/** Fields that are honoured, by kind. */
export const HONOURED: Readonly<Record<RequestKind, readonly string[]>> = {
  completion: [...GENERATION, "prompt", "echo", "add_special_tokens"],
  chat: [...GENERATION, ...MESSAGES, "max_completion_tokens", "top_logprobs"],
  tokenize: ["model", "prompt", "add_special_tokens", ...MESSAGES],
  detokenize: ["model", "tokens"],
};

/** Fields that change neither the answer nor its form. */
export const WITHOUT_EFFECT: readonly string[] = [
  "user",
  "metadata",
  "store",
  "service_tier",
  "safety_identifier",
  "prompt_cache_key",
  "prompt_cache_retention",
  "prediction",
  "priority",
  "request_id",
  "cache_salt",
  "cache_prompt",
  "id_slot",
];

const equals = (neutral: unknown) => (value: unknown) => value === neutral;
const isEmpty = (value: unknown) => Array.isArray(value) && value.length === 0;

/** Values of fields that are not supported with which they ask for nothing; `n` is the number of choices. */
export const NEUTRAL: Readonly<Record<string, (value: unknown, n: number) => boolean>> = {
  add_special_tokens: equals(false),
  allowed_token_ids: isEmpty,
  bad_words: isEmpty,
  best_of: (value, n) => value === n,
  early_stopping: equals(false),
  echo: equals(false),
  include_stop_str_in_output: equals(false),
  length_penalty: equals(1),
  logprobs: equals(false),
  lora: isEmpty,
  min_tokens: equals(0),
  mirostat: equals(0),
  modalities: (value) => Array.isArray(value) && value.length === 1 && value[0] === "text",
  return_token_ids: equals(false),
  return_tokens_as_token_ids: equals(false),
  return_token_strs: equals(false),
  skip_special_tokens: equals(true),
  spaces_between_special_tokens: equals(true),
  suffix: equals(""),
  tfs_z: equals(1),
  typical_p: equals(1),
  use_beam_search: equals(false),
};

/** Names of other servers, and of our own fields in the wrong place, with what to send. */
const INSTEAD: Readonly<Record<string, string>> = {
  functions: "`tools`",
  function_call: "`tool_choice`",
  n_predict: "`max_tokens`",
  repeat_penalty: "`repetition_penalty`",
  json_schema: "`response_format`",
  streams: "`parscale.streams`",
  weights: "`parscale.weights`",
  plain_content: "`parscale.plain_content`",
};

/** Refuses fields that are neither honoured nor without effect. @throws {ApiError} 400 with the name */
export function requireKnownFields(kind: RequestKind, fields: Fields, n = 1): void {
  for (const name of fields.names) {
    if (HONOURED[kind].includes(name) || WITHOUT_EFFECT.includes(name)) continue;
    const isNeutral = Object.hasOwn(NEUTRAL, name) ? NEUTRAL[name] : undefined;
    if (isNeutral?.(fields.get(name), n)) continue;
    const instead = Object.hasOwn(INSTEAD, name) ? INSTEAD[name] : undefined;
    const remedy = instead ? `send ${instead}` : isNeutral && "leave it out";
    const message = remedy
      ? `\`${name}\` is not supported: ${remedy}`
      : `unknown field ${show(name)}`;
    throw badField(name, message, "unsupported_parameter");
  }
}
