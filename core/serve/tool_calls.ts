/**
 * Separates the tool calls of an answer from its text while both are written.
 *
 * A call between marks whose name comes first is passed on while its arguments arrive; one without marks is
 * known at its end only. Arguments keep the text of the model: key order, digits, blanks. What turns out to be
 * no call is text.
 */
import { isObject, jsonValue } from "../base/files.ts";
import { lengthBegun } from "../session/stream.ts";
import type { ToolFormat } from "./tools.ts";

/** A piece of a call; the first of each has its name. */
export interface ToolCallDelta {
  /** Position among the calls of the answer. */
  readonly index: number;
  readonly id?: string;
  readonly name?: string;
  /** JSON text, or a part of it. */
  readonly arguments: string;
}

/** Content of a piece of an answer. */
export interface ParsedText {
  readonly text: string;
  readonly calls: readonly ToolCallDelta[];
}

/** Start of a call, up to its arguments. */
const HEAD =
  /^\s*\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=[\[{])/;

/** Fields of a call without marks; Llama 3 adds a `type`. */
const FIELDS = ["name", "arguments", "parameters", "type"];

/** Code block around a call, as Qwen2.5-Coder writes it in place of its marks; its start may be cut. */
const BLOCK = /^\s*```(?:json)?\s*(?=\{)/, BLOCK_START = /^\s*(?:`{1,2}|```j?s?o?n?\s*)$/;

/** Marks of a thought, in which nothing is called. */
const THOUGHT = "<think>", THOUGHT_END = "</think>";

/** Text that may follow the mark of a call; after any other the mark is a mention in a text. */
const CALL_START = /^\s*(\{\s*(["}]|$)|$)/, CUT_START = /^\s*(\{\s*)?$/;

/** Facts about an answer. */
export interface ToolCallOptions {
  /** The prompt, which may end inside a thought. */
  readonly prompt?: string;
  /** False if calls after the first are dropped. */
  readonly isParallel?: boolean;
}

export class ToolCallParser {
  /** Calls so far. */
  count = 0;
  /** Text that is not decided yet. */
  #held = "";
  #reads: "text" | "thought" | "call" | "bare call" = "text";
  /** Text of the present line that was passed on. */
  #line = "";
  /** Blanks before the call under way, which are text if it turns out to be none. */
  #blanks = "";
  readonly #isParallel: boolean;
  /** True once no more text comes. */
  #isOver = false;
  /** The arguments of the call under way, once its name is known. */
  #value: JsonValue | undefined;
  #hasText = false;
  #text = "";
  #calls: ToolCallDelta[] = [];

  /** `names` are those of the tools that were offered. */
  constructor(
    private readonly format: ToolFormat,
    private readonly names: ReadonlySet<string>,
    { prompt = "", isParallel = true }: ToolCallOptions = {},
  ) {
    this.#isParallel = isParallel;
    if (prompt.trimEnd().endsWith(THOUGHT)) this.#reads = "thought";
  }

  /** Takes text; returns what is certain by it. */
  push(text: string): ParsedText {
    this.#held += text;
    while (this.#readSome());
    return this.#take();
  }

  /** Returns what was held back at the end of an answer. */
  end(): ParsedText {
    this.#isOver = true;
    while (this.#readSome());
    const held = this.#held;
    if (this.#reads !== "call") this.#emit(held);
    else if (!this.#value && !this.#add(fieldsOf(held))) {
      this.#emit(this.#blanks + this.format.trigger + held);
    }
    this.#held = "";
    return this.#take();
  }

  #take(): ParsedText {
    const calls = this.#isParallel ? this.#calls : this.#calls.filter(({ index }) => index === 0);
    const parsed = { text: this.#text, calls };
    this.#hasText ||= this.#text !== "";
    this.#text = "";
    this.#calls = [];
    return parsed;
  }

  /** Reads on; returns whether there may be more to read. */
  #readSome(): boolean {
    if (this.#reads === "text") return this.#readText();
    if (this.#reads === "thought") return this.#readThought();
    return this.#reads === "call" ? this.#readCall() : this.#readBare();
  }

  /** Text up to the next call. */
  #readText(): boolean {
    const { trigger, separator } = this.format;
    const isBareFormat = trigger === "";
    if (!this.#hasText && this.#text === "" && (isBareFormat || this.count === 0)) {
      const behind = this.count > 0 ? this.#held.replace(separator.trim(), "") : this.#held;
      if (behind.trim() === "") return false;
      if (!isBareFormat && !this.#isOver && BLOCK_START.test(behind)) return false;
      if (/^\s*\{/.test(behind) || (!isBareFormat && BLOCK.test(behind))) {
        this.#held = behind;
        this.#reads = "bare call";
        return true;
      }
    }
    if (isBareFormat) return this.#release(this.#held.length);
    const at = this.#held.indexOf(trigger), thought = this.#thoughtAt();
    if (thought >= 0 && (at < 0 || thought < at)) {
      this.#release(thought + THOUGHT.length);
      this.#reads = "thought";
      return true;
    }
    if (at < 0) return this.#release(this.#held.length - heldBack(this.#held, trigger));
    const before = this.#held.slice(0, at), behind = this.#held.slice(at + trigger.length);
    if (!CALL_START.test(behind)) {
      this.#release(at + trigger.length);
      return true;
    }
    this.#release(before.trimEnd().length);
    if (CUT_START.test(behind)) return false;
    this.#blanks = before.slice(before.trimEnd().length);
    this.#held = behind;
    this.#reads = "call";
    return true;
  }

  /** Place of a thought's mark, which stands at the start of a line; -1 without one. */
  #thoughtAt(): number {
    const at = this.#held.indexOf(THOUGHT);
    return at >= 0 && /(^|\n)[ \t]*$/.test(this.#line + this.#held.slice(0, at)) ? at : -1;
  }

  /** A thought up to its end. */
  #readThought(): boolean {
    const at = this.#held.indexOf(THOUGHT_END);
    if (at < 0) return this.#release(this.#held.length - lengthBegun(this.#held, THOUGHT_END));
    this.#release(at + THOUGHT_END.length);
    this.#reads = "text";
    return true;
  }

  /** Passes on the start of what is held back; there is no more to read. */
  #release(length: number): false {
    this.#emit(this.#held.slice(0, length));
    this.#held = this.#held.slice(length);
    return false;
  }

  #emit(text: string): void {
    this.#text += text;
    this.#line = (this.#line + text).split("\n").at(-1)!;
  }

  /** A call between marks. */
  #readCall(): boolean {
    if (!this.#value) {
      const head = HEAD.exec(this.#held);
      const name = head ? jsonValue(head[1]!) : undefined;
      if (!head || typeof name !== "string") return this.#readUnordered();
      this.#begin(name);
      this.#held = this.#held.slice(head[0].length);
      this.#value = new JsonValue();
    }
    const length = this.#value.read(this.#held);
    if (length > 0) {
      this.#calls.push({ index: this.count - 1, arguments: this.#held.slice(0, length) });
      this.#held = this.#held.slice(length);
    }
    return this.#value.isWhole && this.#close(this.#held.indexOf(this.format.end));
  }

  /** A call that is not written in the usual order is read when it is whole. */
  #readUnordered(): boolean {
    const { trigger, end } = this.format;
    const length = wholeLength(this.#held);
    // The mark may stand in a text of a call that is not whole, unless its brackets never close.
    if (length === 0 && !this.#isOver && /^\s*(\{|$)/.test(this.#held)) return false;
    const at = this.#held.indexOf(end, length);
    if (at < 0) return false;
    const raw = this.#held.slice(0, at);
    if (!this.#add(fieldsOf(raw))) this.#emit(this.#blanks + trigger + raw + end);
    return this.#close(at);
  }

  /** Ends a call at the mark there. */
  #close(at: number): boolean {
    if (at < 0) return false;
    this.#held = this.#held.slice(at + this.format.end.length);
    this.#value = undefined;
    this.#reads = "text";
    return true;
  }

  /**
   * JSON at the start of an answer, which is a call where models write no marks. Those that should and
   * left them out have to answer with it and nothing else.
   */
  #readBare(): boolean {
    const isMarked = this.format.trigger !== "", inBlock = isMarked && BLOCK.test(this.#held);
    const held = inBlock ? this.#held.replace(BLOCK, "") : this.#held;
    if (!this.#mayBeCall(held.trimStart())) return this.#readAsText();
    const length = wholeLength(held), rest = held.slice(length).trim();
    const isAlone = inBlock ? "```".startsWith(rest) : rest === "";
    if (length === 0 || (isMarked && isAlone && !this.#isOver)) return false;
    if ((isMarked && !isAlone) || !this.#addBare(fieldsOf(held.slice(0, length)))) {
      return this.#readAsText();
    }
    this.#held = isMarked ? "" : held.slice(length);
    this.#reads = "text";
    return true;
  }

  #readAsText(): boolean {
    this.#reads = "text";
    return this.#hasText = true;
  }

  /** Returns whether a text that begins with a bracket may become a call of a tool that was offered. */
  #mayBeCall(text: string): boolean {
    const [, key, quote] = /^\{\s*"([^"]*)("?)/.exec(text) ?? [];
    if (key === undefined) return /^\{\s*$/.test(text);
    if (!FIELDS.some((field) => quote ? field === key : field.startsWith(key))) return false;
    const [, name] = /^\{\s*"name"\s*:\s*"([^"\\]*)"/.exec(text) ?? [];
    return name === undefined || this.names.has(name);
  }

  /** Adds a call that is whole; returns whether it is one. */
  #add(fields: ReadonlyMap<string, string> | undefined): boolean {
    const name = jsonValue(fields?.get("name") ?? "");
    if (!fields || typeof name !== "string") return false;
    this.#begin(name);
    this.#calls.push({ index: this.count - 1, arguments: argumentsOf(fields) });
    return true;
  }

  /** The same for one without marks: of a tool that was offered, with no field of another meaning. */
  #addBare(fields: ReadonlyMap<string, string> | undefined): boolean {
    const valueOf = (key: string) => jsonValue(fields?.get(key) ?? "");
    const isCall = fields?.keys().every((key) => FIELDS.includes(key)) &&
      this.names.has(String(valueOf("name"))) &&
      (!fields.has("type") || valueOf("type") === "function") &&
      !(fields.has("arguments") && fields.has("parameters"));
    return !!isCall && this.#add(fields);
  }

  #begin(name: string): void {
    const id = `call_${crypto.randomUUID().replaceAll("-", "").slice(0, 24)}`;
    this.#calls.push({ index: this.count++, id, name, arguments: "" });
  }
}

/** The end of an object or list, found while its text arrives. */
class JsonValue {
  isWhole = false;
  #depth = 0;
  #inString = false;
  #isEscaped = false;

  /** Characters of a text that belong to the value. */
  read(text: string): number {
    for (let i = 0; i < text.length && !this.isWhole; i++) {
      const character = text[i]!;
      if (this.#isEscaped) this.#isEscaped = false;
      else if (character === '"') this.#inString = !this.#inString;
      else if (this.#inString) this.#isEscaped = character === "\\";
      else if (character === "{" || character === "[") this.#depth++;
      else if ((character === "}" || character === "]") && --this.#depth === 0) {
        this.isWhole = true;
        return i + 1;
      }
    }
    return this.isWhole ? 0 : text.length;
  }
}

/** Length of a text up to the end of the object that it begins with; 0 where that is not whole. */
function wholeLength(text: string): number {
  if (!/^\s*\{/.test(text)) return 0;
  const value = new JsonValue(), length = value.read(text);
  return value.isWhole ? length : 0;
}

/** The text of every field of a JSON object; undefined for what is none. */
function fieldsOf(text: string): ReadonlyMap<string, string> | undefined {
  if (!isObject(jsonValue(text))) return undefined;
  const fields = new Map<string, string>();
  const field = /\s*[{,]\s*("(?:[^"\\]|\\.)*")\s*:\s*("(?:[^"\\]|\\.)*"|[^\s,{}[\]"]*)/y;
  for (let found = field.exec(text); found; found = field.exec(text)) {
    const [, key, scalar] = found;
    const value = scalar || text.slice(field.lastIndex);
    const raw = scalar || value.slice(0, new JsonValue().read(value));
    fields.set(JSON.parse(key!), raw);
    if (!scalar) field.lastIndex += raw.length;
  }
  return fields;
}

/** The arguments of a call as its model wrote them; text that holds their JSON stands for it. */
function argumentsOf(fields: ReadonlyMap<string, string>): string {
  const raw = fields.get("arguments") ?? fields.get("parameters") ?? "null";
  const text = raw.startsWith('"') ? JSON.parse(raw) : raw;
  return ["", "null"].includes(text.trim()) ? "{}" : text;
}

/** Length of the end of a text that may belong to a call or a thought: blanks, and a prefix of its mark. */
function heldBack(text: string, trigger: string): number {
  const length = Math.max(lengthBegun(text, trigger), lengthBegun(text, THOUGHT));
  const before = text.slice(0, text.length - length);
  return length + before.length - before.trimEnd().length;
}
