/**
 * Turns a conversation into the prompt that a chat model was trained on, as transformers 5.24 does.
 *
 * Special tokens are written out in the text, which is encoded as it is.
 */
import { mergeExact, parseExactJson } from "../base/exact_json.ts";
import { isObject, jsonValue, show } from "../base/files.ts";
import { DataError } from "../base/errors.ts";
import { rstrip } from "../base/python_text.ts";
import { contentText, type TextPart, textParts, withReadContent } from "./content.ts";
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
  /** Ends the prompt with the start of the assistant's answer (default true, unless it continues one). */
  readonly addGenerationPrompt?: boolean | undefined;
  /** Ends the prompt inside the last message, which the model continues. */
  readonly continueFinalMessage?: boolean;
  /** JSON descriptions of functions the model may call. */
  readonly tools?: readonly unknown[];
  /** Further variables of the template, such as `enable_thinking`, over those of the tokenizer. */
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

/**
 * Renders messages with the tokenizer's template; `messages` is checked, as it may come from a row.
 * @throws {DataError} for messages, tools or variables that the template does not take
 */
export async function renderChat(
  tokenizer: TokenizerInfo,
  messages: readonly ChatMessage[],
  options: ChatOptions = {},
): Promise<string> {
  const { chatTemplate, toolTemplate, directory, namedTokens } = tokenizer;
  if (chatTemplate === undefined) {
    throw new DataError(`"${directory}" has no chat template for messages`, {
      hints: ["pass prompts instead of messages; a base model was not trained on chats"],
    });
  }
  requireMessages(messages);
  const { tools, continueFinalMessage = false } = options;
  const { addGenerationPrompt = !continueFinalMessage } = options;
  if (addGenerationPrompt && continueFinalMessage) {
    throw new DataError("a prompt cannot both continue the last message and begin an answer");
  }
  const template = tools ? toolTemplate ?? chatTemplate : chatTemplate;
  if (tools?.length && !reads(template, "tools")) {
    throw new DataError(`the chat template of "${directory}" has no tools`, {
      hints: ["leave out `tools`, or use a chat_template.jinja that writes them"],
    });
  }
  const given = mergeExact(tokenizer.templateVariables, options.variables);
  requireVariables(given, [template, chatTemplate, toolTemplate ?? ""], directory);
  const { renderTemplate } = await import("./template_renderer.ts");
  const read = messages.map((message) =>
    withReadContent(toTemplateMessage(message, template), template, renderTemplate)
  );
  const variables = mergeExact(namedTokens, given, {
    messages: continueFinalMessage ? withTag(read) : read,
    tools: tools ?? null,
    add_generation_prompt: addGenerationPrompt,
  });
  try {
    const text = renderTemplate({ template, variables });
    return continueFinalMessage ? beforeTag(text) : text;
  } catch (cause) {
    if (!(cause instanceof DataError)) throw cause;
    throw new DataError(`the chat template of "${directory}" failed: ${show(cause.message)}`, {
      hints: ["check the order and the roles of the messages"],
    });
  }
}

/** Stands at the end of a message in rendered text; no conversation has it. */
const CUT = "-[[]]-the-model-continues-here-[[]]-";

/**
 * Renders messages up to where the model writes: after them, or at the end of the last one where that
 * is the prefix of the assistant's answer. As in EvalPlus, whose prefixes end in a line feed, that is
 * kept as it is, where `continueFinalMessage` trims it if the template does.
 */
export async function renderPrompt(
  tokenizer: TokenizerInfo,
  messages: readonly ChatMessage[],
): Promise<string> {
  const last = messages.at(-1);
  if (last?.role !== "assistant") return await renderChat(tokenizer, messages);
  const marked = messages.with(-1, { ...last, content: contentText(last.content) + CUT });
  const text = await renderChat(tokenizer, marked, { addGenerationPrompt: false });
  const end = text.indexOf(CUT);
  if (end >= 0) return text.slice(0, end);
  throw new DataError(
    `the chat template of "${tokenizer.directory}" leaves out the prefix of an answer`,
  );
}

/** Returns whether a template has a name anywhere. */
function reads(template: string, name: string): boolean {
  return new RegExp(`(?<![\\w$])${RegExp.escape(name)}(?![\\w$])`).test(template);
}

/** Variables that rendering sets itself. */
const OWN_VARIABLES = ["messages", "tools", "add_generation_prompt", "continue_final_message"];

/** Refuses variables without an effect. One that is false or null asks for nothing. */
function requireVariables(
  variables: Readonly<Record<string, unknown>>,
  templates: readonly string[],
  directory: string,
): void {
  for (const [name, value] of Object.entries(variables)) {
    if (OWN_VARIABLES.includes(name)) {
      throw new DataError(`\`${name}\` cannot be set as a variable of a chat template`);
    }
    if (value === false || value === null) continue;
    if (templates.some((template) => reads(template, name))) continue;
    throw new DataError(`the chat template of "${directory}" has no variable ${show(name)}`, {
      hints: ["leave it out, or check how the template spells it"],
    });
  }
}

/** A message as templates read it. */
function toTemplateMessage(message: ChatMessage, template: string): ChatMessage {
  const known = message.role === "developer" && !reads(template, "developer")
    ? { ...message, role: "system" }
    : message;
  return withArguments(withReasoning(known));
}

/** Names of a message's thoughts, of which templates read the first, and those of gpt-oss the second. */
const REASONING = ["reasoning_content", "thinking", "reasoning"];

function withReasoning(message: ChatMessage): ChatMessage {
  const thoughts = REASONING.map((name) => message[name]).find((one) => (one ?? null) !== null);
  if (thoughts === undefined) return message;
  return { thinking: thoughts, ...message, reasoning_content: thoughts };
}

/**
 * Calls of an earlier answer: arguments are objects, not texts of JSON. Clients send back null or an empty
 * list for no calls, and templates ask whether the key is there.
 */
function withArguments(message: ChatMessage): ChatMessage {
  const { tool_calls: calls, ...others } = message;
  if (calls === null || Array.isArray(calls) && calls.length === 0) return others as ChatMessage;
  if (!Array.isArray(calls)) return message;
  const read = calls.map((call) => {
    const body = isObject(call) && isObject(call.function) ? call.function : undefined;
    return body ? { ...call, function: { ...body, arguments: argumentsOf(body.arguments) } } : call;
  });
  return { ...message, tool_calls: read };
}

function argumentsOf(value: unknown): unknown {
  if (typeof value !== "string") return value ?? {};
  return value === "" ? {} : jsonValue(value, parseExactJson) ?? value;
}

/** Marks the end of the last message; a template that trims takes the blank, as in transformers. */
const TAG = "CONTINUE_FINAL_MESSAGE_TAG ";

function withTag(messages: readonly ChatMessage[]): ChatMessage[] {
  const last = messages.at(-1)!, { content } = last;
  const parts = Array.isArray(content) ? content as TextPart[] : [];
  const end = parts.at(-1);
  if (typeof content !== "string" && !end) {
    throw new DataError("the last message has no text that can be continued");
  }
  const tagged = end ? parts.with(-1, { ...end, text: end.text + TAG }) : content + TAG;
  return [...messages.slice(0, -1), { ...last, content: tagged }];
}

function beforeTag(text: string): string {
  const at = text.lastIndexOf(TAG.trim());
  if (at < 0) throw new DataError("it does not write the last message, which is to be continued");
  const before = text.slice(0, at);
  return text.startsWith(TAG, at) ? before : rstrip(before);
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
    if (typeof role === "string" && textParts(content)) return;
    throw new DataError(
      `message ${index + 1} must have role and content as text: ${show(message)}`,
      { hints: ['a message is {"role": "user", "content": "Hello"}'] },
    );
  });
}
