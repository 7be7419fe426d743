/**
 * Content of a message as its template reads it: a text, or a list of parts. Templates are asked by rendering
 * a marked message of each role, which tells what they do with it; vLLM looks for a loop over the parts.
 */
import { isObject, show } from "../base/files.ts";
import { DataError } from "../base/errors.ts";
import { keepLast } from "../base/recent.ts";
import type { RenderRequest } from "./template_renderer.ts";

/** A part of a message's content. */
export interface TextPart {
  readonly type: "text";
  readonly text: string;
}

/** Types of text parts: of chat completions, and of responses as clients send them back. */
const TEXT_TYPES: readonly unknown[] = [undefined, "text", "input_text", "output_text"];

/** The parts of a content; undefined if one is not text. */
export function textParts(content: unknown): TextPart[] | undefined {
  const parts = (Array.isArray(content) ? content : [content]).map((part) => {
    if (typeof part === "string") return { type: "text" as const, text: part };
    if (!isObject(part) || typeof part.text !== "string") return undefined;
    return TEXT_TYPES.includes(part.type) ? { ...part, type: "text", text: part.text } : undefined;
  });
  return parts.includes(undefined) ? undefined : parts as TextPart[];
}

/** The content as one text; parts are lines, as in vLLM and llama.cpp. @throws {DataError} for other parts */
export function contentText(content: unknown): string {
  if (typeof content === "string") return content;
  const parts = textParts(content ?? []);
  if (parts) return parts.map(({ text }) => text).join("\n");
  throw new DataError(`a message has content that is not text: ${show(content)}`);
}

/** Contents that a template writes for a role: texts, lists of one part, lists of any length. */
interface Reading {
  readonly text: boolean;
  readonly onePart: boolean;
  readonly parts: boolean;
}

/** Text that no template has. */
const MARKS = ["FirstOfTwoParts", "SecondOfTwoParts"];

/** Variables that templates add to texts. */
const TOKENS = { bos_token: "", eos_token: "", add_generation_prompt: false };

/** Templates whose readings are kept. */
const MAX_KEPT = 8;

const readings = new Map<string, Map<string, Reading>>();

type Render = (request: RenderRequest) => string;

/** A message whose content has the form that the template reads. */
export function withReadContent<T extends { readonly role: string; readonly content?: unknown }>(
  message: T,
  template: string,
  render: Render,
): T {
  const { role, content } = message;
  if ((content ?? null) === null) return message;
  // A template that never names the text of a part reads texts alone.
  if (typeof content === "string" && !/\btext\b/.test(template)) return message;
  if (!readings.has(template)) keepLast(readings, template, new Map(), MAX_KEPT);
  const reading = readings.get(template)!
    .getOrInsertComputed(role, () => readingOf(template, role, render));
  if (typeof content === "string") {
    if (reading.text || !reading.onePart) return message;
    return { ...message, content: textParts(content) };
  }
  const text = contentText(content);
  if (reading.parts) return { ...message, content: textParts(content) };
  return { ...message, content: reading.onePart && !reading.text ? textParts(text) : text };
}

function readingOf(template: string, role: string, render: Render): Reading {
  const shows = (content: unknown, marks: readonly string[]) => {
    const variables = { ...TOKENS, messages: probe({ role, content }) };
    try {
      const text = render({ template, variables });
      // A list that is written as it is has its texts in quotes.
      return marks.every((mark) => text.replaceAll(/(['"])\w+\1/g, "").includes(mark));
    } catch (error) {
      if (error instanceof DataError) return false;
      throw error;
    }
  };
  const parts = MARKS.map((text) => ({ type: "text", text }));
  return {
    text: shows(MARKS[0], MARKS.slice(0, 1)),
    onePart: shows(parts.slice(0, 1), MARKS.slice(0, 1)),
    parts: shows(parts, MARKS),
  };
}

/** A conversation in which a message of its role may stand. */
function probe(message: { readonly role: string; readonly content: unknown }): object[] {
  const user = { role: "user", content: "Hello" };
  if (message.role === "user") return [message];
  if (message.role === "system" || message.role === "developer") return [message, user];
  if (message.role !== "tool") return [user, message];
  const call = { id: "call00001", type: "function", function: { name: "f", arguments: {} } };
  const asked = { role: "assistant", content: "", tool_calls: [call] };
  return [user, asked, { ...message, name: "f", tool_call_id: call.id }];
}
