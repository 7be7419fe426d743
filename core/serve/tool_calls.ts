/**
 * Separates the tool calls of an answer from its text while both are written.
 *
 * The name of a call is known before its arguments, which are passed on as they come. What turns out to
 * be no call is text.
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

/** Beginning of a call up to its arguments. */
const HEAD =
  /^\s*\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=[\[{])/;

export class ToolCallParser {
  /** Calls so far. */
  count = 0;
  /** Text that is not decided yet. */
  #held = "";
  #isCall = false;
  /** The arguments of the call under way, once its name is known. */
  #value: JsonValue | undefined;
  #hasText = false;
  #text = "";
  #calls: ToolCallDelta[] = [];

  constructor(private readonly format: ToolFormat) {}

  /** Takes text; returns what is certain by it. */
  push(text: string): ParsedText {
    this.#held += text;
    while (this.#isCall ? this.#readCall() : this.#readText());
    return this.#take();
  }

  /** Returns what was held back at the end of an answer. */
  end(): ParsedText {
    if (this.#isCall && !this.#value && !this.#readWhole(this.#held)) {
      this.#text += this.format.trigger + this.#held;
    } else if (!this.#isCall) this.#text += this.#held;
    this.#held = "";
    return this.#take();
  }

  #take(): ParsedText {
    const parsed = { text: this.#text, calls: this.#calls };
    this.#hasText ||= this.#text !== "";
    this.#text = "";
    this.#calls = [];
    return parsed;
  }

  /** Text up to the next call; whether there may be more to read. */
  #readText(): boolean {
    const { trigger, separator } = this.format;
    if (trigger === "") {
      const start = this.count > 0 ? this.#held.replace(separator.trim(), "") : this.#held;
      if (!this.#hasText && /^\s*\{/.test(start)) {
        this.#held = start.trimStart();
        return this.#isCall = true;
      }
      if (this.#hasText || start.trim() !== "") this.#release(this.#held.length);
      return false;
    }
    const at = this.#held.indexOf(trigger);
    if (at < 0) {
      this.#release(this.#held.length - heldBack(this.#held, trigger));
      return false;
    }
    this.#text += this.#held.slice(0, at).trimEnd();
    this.#held = this.#held.slice(at + trigger.length);
    return this.#isCall = true;
  }

  #release(length: number): void {
    this.#text += this.#held.slice(0, length);
    this.#held = this.#held.slice(length);
  }

  /** The call under way; whether there may be more to read. */
  #readCall(): boolean {
    const { end } = this.format;
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
    if (!this.#value.isWhole) return false;
    const close = end === "" ? this.#held.indexOf("}") + 1 : this.#held.indexOf(end) + end.length;
    if (close <= Math.max(0, end.length - 1)) return false;
    this.#held = this.#held.slice(close);
    this.#value = undefined;
    this.#isCall = false;
    return true;
  }

  /** A call that is not written in the usual order is read when it is whole. */
  #readUnordered(): boolean {
    const { trigger, end } = this.format;
    if (end === "") return false;
    const at = this.#held.indexOf(end);
    if (at < 0) return false;
    const raw = this.#held.slice(0, at);
    if (!this.#readWhole(raw)) this.#text += trigger + raw + end;
    this.#held = this.#held.slice(at + end.length);
    this.#isCall = false;
    return true;
  }

  #readWhole(raw: string): boolean {
    const call = jsonValue(raw);
    if (!isObject(call) || typeof call.name !== "string") return false;
    this.#begin(call.name);
    const value = call.arguments ?? call.parameters ?? {};
    this.#calls.push({ index: this.count - 1, arguments: JSON.stringify(value) });
    return true;
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

/** Length of the end of a text that may belong to a call: blanks, and the beginning of its trigger. */
function heldBack(text: string, trigger: string): number {
  const length = lengthBegun(text, trigger);
  const before = text.slice(0, text.length - length);
  return length + before.length - before.trimEnd().length;
}
