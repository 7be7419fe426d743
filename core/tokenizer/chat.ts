/**
 * Turns a conversation into the prompt that a chat model was trained on.
 *
 * Special tokens are written out in the text, which is encoded as it is. Blocks are trimmed as in
 * Hugging Face's transformers (trim_blocks, lstrip_blocks), without which the prompt has line feeds no
 * model has seen.
 */
import { isObject, jsonValue, show } from "../base/files.ts";
import { DataError } from "../base/errors.ts";
import type { Tokenizer, TokenizerInfo } from "./types.ts";

/** One message; templates may use more fields than these. */
export interface ChatMessage {
  /** `system`, `user`, `assistant` or `tool`, or what else the template knows. */
  readonly role: string;
  /** Absent or null in a message that only calls tools. */
  readonly content?: string | readonly unknown[] | null;
  /** Whatever else the template reads, such as `tool_calls`. */
  readonly [field: string]: unknown;
}

/** Options of rendering. */
export interface ChatOptions {
  /** Ends the prompt with the start of the assistant's answer (default true). */
  readonly addGenerationPrompt?: boolean;
  /** JSON descriptions of functions the model may call. */
  readonly tools?: readonly unknown[];
  /** Further variables of the template, such as `enable_thinking`. */
  readonly variables?: Readonly<Record<string, unknown>>;
}

/** Token ids of messages; the template writes out the tokens that frame a text. */
export async function encodeChat(
  tokenizer: Tokenizer,
  messages: readonly ChatMessage[],
  options?: ChatOptions,
): Promise<number[]> {
  return tokenizer.encode(await renderChat(tokenizer, messages, options), { frame: false });
}

/** Renders messages with the tokenizer's template; `messages` is checked, as it may come from a row. */
export async function renderChat(
  tokenizer: TokenizerInfo,
  messages: readonly ChatMessage[],
  { addGenerationPrompt = true, tools, variables = {} }: ChatOptions = {},
): Promise<string> {
  const { chatTemplate, toolTemplate, directory, namedTokens } = tokenizer;
  if (chatTemplate === undefined) {
    throw new DataError(
      `"${directory}" has no chat template for messages`,
      { hints: ["pass prompts instead of messages; a base model was not trained on chats"] },
    );
  }
  requireMessages(messages);
  const template = tools ? toolTemplate ?? chatTemplate : chatTemplate;
  if (tools?.length && !/\btools\b/.test(template)) {
    throw new DataError(`the chat template of "${directory}" has no tools`, {
      hints: ["leave out `tools`, or use a chat_template.jinja that writes them"],
    });
  }
  const { renderTemplate } = await import("./template_renderer.ts");
  const all = {
    ...namedTokens,
    ...variables,
    messages: messages.map(withArguments),
    tools: tools ?? null,
    add_generation_prompt: addGenerationPrompt,
  };
  try {
    return await renderTemplate({ template, variables: all });
  } catch (cause) {
    if (!(cause instanceof DataError)) throw cause;
    throw new DataError(
      `the chat template of "${directory}" failed: ${show(cause.message)}`,
      { hints: ["check the order and the roles of the messages"] },
    );
  }
}

/** Stands at the end of a message in rendered text; no conversation has it. */
const CUT = "-[[]]-the-model-continues-here-[[]]-";

/**
 * Renders messages up to where the model writes: behind them, or at the end of the last one where that
 * is the beginning of the assistant's answer.
 */
export async function renderPrompt(
  tokenizer: TokenizerInfo,
  messages: readonly ChatMessage[],
): Promise<string> {
  const last = messages.at(-1);
  if (last?.role !== "assistant") return await renderChat(tokenizer, messages);
  const marked = messages.with(-1, { ...last, content: `${last.content ?? ""}${CUT}` });
  const text = await renderChat(tokenizer, marked, { addGenerationPrompt: false });
  const end = text.indexOf(CUT);
  if (end >= 0) return text.slice(0, end);
  throw new DataError(
    `the chat template of "${tokenizer.directory}" leaves out the beginning of an answer`,
  );
}

/** Calls of an earlier answer as templates read them: arguments are objects, not texts of JSON. */
function withArguments(message: ChatMessage): ChatMessage {
  const { tool_calls: calls } = message;
  if (!Array.isArray(calls)) return message;
  const read = calls.map((call) => {
    const body = isObject(call) && isObject(call.function) ? call.function : undefined;
    return body ? { ...call, function: { ...body, arguments: argumentsOf(body.arguments) } } : call;
  });
  return { ...message, tool_calls: read };
}

function argumentsOf(value: unknown): unknown {
  if (typeof value !== "string") return value ?? {};
  return value === "" ? {} : jsonValue(value) ?? value;
}

function requireMessages(messages: unknown): void {
  if (!Array.isArray(messages) || messages.length === 0) {
    throw new DataError(
      `"messages" must be a list of at least one message, not ${show(messages)}`,
      { hints: ['a message is {"role": "user", "content": "Hello"}'] },
    );
  }
  messages.forEach((message, index) => {
    const role = isObject(message) ? message.role : undefined;
    const content = isObject(message) ? message.content ?? "" : undefined;
    if (typeof role === "string" && (typeof content === "string" || Array.isArray(content))) return;
    throw new DataError(
      `message ${index + 1} must have role and content as text: ${show(message)}`,
      { hints: ['a message is {"role": "user", "content": "Hello"}'] },
    );
  });
}
