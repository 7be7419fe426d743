/**
 * Tools of a chat request: how models of a template family write calls, and grammars that force them to.
 *
 * The family is told by what the template itself writes: Qwen2.5, Qwen3 and Hermes frame a call by
 * `<tool_call>`, Llama 3 writes bare JSON.
 */
import { DataError } from "../base/errors.ts";
import { isObject, jsonValue, show } from "../base/files.ts";
import {
  choice,
  complement,
  type Expression,
  type Grammar,
  repeat,
  Rules,
  sequence,
} from "../grammar/expression.ts";
import { networkOf } from "../grammar/network.ts";
import { addSchema, schemaGrammar } from "../grammar/schema.ts";
import { type Dropped, Refusal } from "../grammar/schema_fields.ts";
import type { ChatMessage } from "../tokenizer/chat.ts";
import { lengthBegun } from "../session/stream.ts";
import { badField } from "./errors.ts";
import type { Fields } from "./fields.ts";

/** A function that the model may call. */
interface Tool {
  readonly name: string;
  /** JSON Schema of its arguments, and the keywords of it that are not enforced. */
  readonly parameters: unknown;
  readonly dropped: Dropped;
  /** True if arguments must match the schema. */
  readonly isStrict: boolean;
  /** As the client wrote it, for the template. */
  readonly given: unknown;
}

/** The tools of a request. */
export interface ToolRequest {
  readonly tools: readonly Tool[];
  /** `auto`, `required`, or the one function that is to be called. */
  readonly choice: "auto" | "required" | { readonly name: string };
  /** True if an answer may have several calls. */
  readonly isParallel: boolean;
}

/** Format of tool calls. */
export interface ToolFormat {
  /** Text that opens a call; "" where a call opens the answer. */
  readonly trigger: string;
  /** End of a call after its JSON. */
  readonly end: string;
  /** Between the trigger and the JSON, and before the end. */
  readonly gap: string;
  /** Between calls. */
  readonly separator: string;
  /** Key of the arguments. */
  readonly argumentsKey: string;
}

const HERMES: ToolFormat = {
  trigger: "<tool_call>",
  end: "</tool_call>",
  gap: "\n",
  separator: "\n",
  argumentsKey: "arguments",
};

const LLAMA3: ToolFormat = {
  trigger: "",
  end: "",
  gap: "",
  separator: "; ",
  argumentsKey: "parameters",
};

/** Most tools, and most characters of all together: templates write them into the prompt. */
const MAX_TOOLS = 128, MAX_CHARACTERS = 128 << 10;

/** Most schemas of a function whose keywords are left out. */
const MAX_DROPPED = 32;

/** Returns the format of tool calls of a chat template; undefined for one that knows none. */
export function toolFormatOf(template: string | undefined): ToolFormat | undefined {
  if (!template || !/\btools\b/.test(template)) return undefined;
  if (template.includes(HERMES.trigger)) return HERMES;
  return template.includes('"parameters"') ? LLAMA3 : undefined;
}

/** Reads `tools`, `tool_choice` and `parallel_tool_calls`; undefined where no tool is to be called. */
export function readTools(fields: Fields): ToolRequest | undefined {
  const given = fields.get("tools") ?? [];
  if (!Array.isArray(given) || given.length > MAX_TOOLS) {
    throw badField("tools", `\`tools\` needs a list of at most ${MAX_TOOLS} functions`);
  }
  if (JSON.stringify(given).length > MAX_CHARACTERS) {
    throw badField("tools", `\`tools\` has more than ${MAX_CHARACTERS} characters`);
  }
  const tools = given.map(readTool);
  const isParallel = fields.boolean("parallel_tool_calls", true);
  const choice = readChoice(fields.get("tool_choice") ?? "auto", tools);
  return choice === "none" || tools.length === 0 ? undefined : { tools, choice, isParallel };
}

function readTool(given: unknown, i: number): Tool {
  const { type, function: body } = isObject(given) ? given : {};
  if (type !== "function" || !isObject(body) || !/^[\w.-]{1,64}$/.test(String(body.name))) {
    const needs = '`type` "function" and a `function` with a name of letters and digits';
    throw badField(`tools[${i}]`, `\`tools[${i}]\` needs ${needs}`);
  }
  const { name, parameters = true, strict } = body;
  try {
    const dropped = droppedOf(parameters, strict !== true);
    return { name: String(name), parameters, dropped, isStrict: strict === true, given };
  } catch (error) {
    if (!(error instanceof DataError)) throw error;
    throw badField(`tools[${i}]`, `\`tools[${i}]\`: ${error.message}`);
  }
}

/**
 * The keywords of parameters that are not enforced, by their schemas; none unless they may be left out.
 * @throws {DataError} where that does not suffice, or no object is allowed
 */
function droppedOf(parameters: unknown, mayDrop: boolean): Dropped {
  const dropped: Dropped = new Map();
  for (;;) {
    try {
      networkOf(schemaGrammar(parameters, { dropped, isObject: true }));
      return dropped;
    } catch (error) {
      const isDropped = mayDrop && error instanceof Refusal && error.drop(dropped);
      if (!isDropped || dropped.size > MAX_DROPPED) throw error;
    }
  }
}

/** Says which keywords of parameters are not enforced; undefined for none. */
export function droppedNote({ tools }: ToolRequest): string | undefined {
  const notes = tools.filter(({ dropped }) => dropped.size > 0).map(({ name, dropped }) => {
    const keywords = new Set([...dropped.values()].flatMap((keywords) => [...keywords]));
    return `${name}: ${[...keywords].join(", ")}`;
  });
  return notes.length > 0 ? `not enforced in tools: ${notes.join("; ")}` : undefined;
}

function readChoice(value: unknown, tools: readonly Tool[]): ToolRequest["choice"] | "none" {
  if (value === "none" || value === "auto") return value;
  if (tools.length === 0) throw badField("tool_choice", "`tool_choice` needs `tools`");
  if (value === "required") return value;
  const name = isObject(value) && isObject(value.function) ? value.function.name : undefined;
  if (tools.some((tool) => tool.name === name)) return { name: String(name) };
  const known = tools.map((tool) => `"${tool.name}"`).join(", ");
  throw badField("tool_choice", `\`tool_choice\` names ${show(name ?? value)}; known: ${known}`);
}

/** The grammar that a choice of tools asks for; undefined where the model is free. */
export function toolGrammar(
  { tools, choice: chosen, isParallel }: ToolRequest,
  { trigger, end, gap, separator, argumentsKey }: ToolFormat,
): Grammar | undefined {
  const isFree = chosen === "auto";
  if (isFree && (trigger === "" || !tools.some(({ isStrict }) => isStrict))) return undefined;
  const allowed = typeof chosen === "string"
    ? tools
    : tools.filter(({ name }) => name === chosen.name);
  const isOne = !isParallel || typeof chosen === "object";
  const rules = new Rules();
  rules.named("answer", () => {
    const calls = allowed.map(({ name, parameters, dropped }) =>
      sequence(
        `${gap}{"name": "${name}", "${argumentsKey}": `,
        addSchema(parameters, rules, { dropped, isObject: true }),
        `}${gap}${end}`,
      )
    );
    const call = rules.shared(choice(...calls));
    if (isFree) return textWithCalls(trigger, call, isOne, rules);
    const framed = sequence(trigger, call);
    return isOne ? framed : sequence(framed, repeat(sequence(separator, framed), 0));
  });
  return rules.grammar();
}

/**
 * Any text, in which a call follows each trigger. Rules tell how much of the trigger was written last; a
 * text may end in any of them.
 */
function textWithCalls(
  trigger: string,
  call: Expression,
  isOne: boolean,
  rules: Rules,
): Expression {
  const written = (length: number): Expression =>
    rules.named(`text ${length}`, () => {
      const letters = [...new Set(trigger.slice(0, length + 1))];
      const next = letters.map((letter) => {
        const text = trigger.slice(0, length) + letter;
        if (text === trigger) return sequence(letter, call, isOne ? "" : written(0));
        return sequence(letter, written(lengthBegun(text, trigger)));
      });
      const others = complement(
        letters.map((letter) => [letter.charCodeAt(0), letter.charCodeAt(0)]),
      );
      return choice("", ...next, sequence({ kind: "class", ranges: others }, written(0)));
    });
  return written(0);
}

/** Requires calls of an earlier answer to have names, and arguments that are JSON. */
export function requireCalls({ tool_calls: calls }: ChatMessage, at: string): void {
  if (calls === undefined || calls === null) return;
  if (!Array.isArray(calls)) throw badField(at, `\`${at}.tool_calls\` needs a list`);
  for (const call of calls) {
    const body = isObject(call) && isObject(call.function) ? call.function : undefined;
    if (!body || typeof body.name !== "string") {
      throw badField(at, `\`${at}.tool_calls\` needs functions with a name`);
    }
    const { arguments: text } = body;
    if (typeof text !== "string" || text === "" || jsonValue(text) !== undefined) continue;
    throw badField(at, `\`${at}.tool_calls\` has arguments that are not JSON: ${show(text)}`);
  }
}
