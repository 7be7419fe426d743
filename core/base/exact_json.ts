/**
 * JSON whose numbers keep their digits and whose objects keep the order of their keys.
 *
 * `JSON.parse` makes 0.0 an integer, drops digits beyond 2^53 and puts keys that look like integers
 * first. Values read here are what `JSON.parse` gives, so that all code may take them; objects and arrays
 * in which it lost something note it under a symbol, which copies by `...` keep as long as the value.
 */

/** Forms that `JSON.parse` lost of one object or array. */
interface Lost {
  /** Keys in the order of the text. */
  readonly keys?: readonly string[];
  /** Numbers as they are written, by key or place. */
  readonly numbers: ReadonlyMap<string, string>;
}

const LOST = Symbol("what JSON.parse lost");

type Noted = { [LOST]?: Lost };

/** Places where strings and numbers start. */
const TOKEN = /"|-?\d[\d.eE+-]*/g;

/** A colon after a string, which is a key then. */
const COLON = /\s*:/y;

/** Keys that JavaScript puts before others, in their own order. */
const INTEGER_KEY = /^(0|[1-9]\d*)$/;

/**
 * The value of a JSON text. @throws {SyntaxError} for other text
 *
 * @example
 * ```ts
 * import { type ChatMessage, openModel, parseExactJson } from "@parscale/parscale";
 *
 * const text = `[{"role": "user", "content": "Add.", "values": [1.0, 12345678901234567890]}]`;
 * using model = await openModel("qwen-p4");
 * await model.complete(parseExactJson(text) as ChatMessage[]);
 * ```
 */
export function parseExactJson(text: string): unknown {
  const value = JSON.parse(text);
  return losesForm(text) ? new Reader(text).value() : value;
}

/**
 * The value of a row of data, with lost forms where it is a conversation: nothing else is rendered, and long
 * lists of token ids would take eight times as long. @throws {SyntaxError} for other text
 */
export function parseRowJson(text: string): unknown {
  const value = JSON.parse(text);
  const { messages, conversations } = (value ?? {}) as Readonly<Record<string, unknown>>;
  const isChat = (messages ?? conversations) !== undefined;
  return isChat && losesForm(text) ? new Reader(text).value() : value;
}

/**
 * The value of JSON as Python writes it: NaN and infinities become objects, such as `{"__float__": "NaN"}`,
 * as transformers 5 writes them. @throws {SyntaxError} for other text
 */
export function parsePythonJson(text: string, parse: (text: string) => unknown): unknown {
  try {
    return parse(text);
  } catch (error) {
    const tokens = /"|NaN|-?Infinity/g;
    let standard = "", done = 0;
    for (let match; (match = tokens.exec(text));) {
      const { 0: token, index } = match;
      if (token === '"') {
        const end = stringEnd(text, index);
        if (end <= index) throw error; // it has no end
        tokens.lastIndex = end;
      } else {
        standard += `${text.slice(done, index)}{"__float__": "${token}"}`;
        done = tokens.lastIndex;
      }
    }
    if (done === 0) throw error;
    return parse(standard + text.slice(done));
  }
}

/** Returns whether `JSON.parse` loses the form of a number or the order of keys. */
function losesForm(text: string): boolean {
  const tokens = new RegExp(TOKEN);
  for (let match; (match = tokens.exec(text));) {
    const { 0: token, index } = match;
    if (token !== '"') {
      if (isLost(token)) return true;
      continue;
    }
    COLON.lastIndex = tokens.lastIndex = stringEnd(text, index);
    if (/\d/.test(text[index + 1] ?? "") && COLON.test(text)) return true;
  }
  return false;
}

/** Place after a string that begins at `from`; by hand, since a pattern fails on long ones. */
function stringEnd(text: string, from: number): number {
  for (let at = from + 1;; at++) {
    at = text.indexOf('"', at);
    let slashes = 0;
    while (text[at - 1 - slashes] === "\\") slashes++;
    if (slashes % 2 === 0) return at + 1;
  }
}

function isLost(number: string): boolean {
  return String(Number(number)) !== number;
}

/** Entries of an object in the order in which they were written, with lost forms of numbers. */
export function exactEntries(
  object: Readonly<Record<string, unknown>>,
): [key: string, value: unknown, number: string | undefined][] {
  const { keys, numbers } = (object as Noted)[LOST] ?? {};
  const own = Object.keys(object);
  const kept = keys?.filter((key) => Object.hasOwn(object, key));
  const ordered = kept ? [...new Set([...kept, ...own])] : own;
  return ordered.map((key) => [key, object[key], numberText(object[key], numbers?.get(key))]);
}

/** Items of an array with lost forms of numbers. */
export function exactItems(
  array: readonly unknown[],
): [value: unknown, number: string | undefined][] {
  const numbers = (array as Noted)[LOST]?.numbers;
  return array.map((value, i) => [value, numbers && numberText(value, numbers.get(String(i)))]);
}

/** The text of a JSON value, with numbers and keys as they were read. */
export function exactJsonText(value: unknown): string {
  if (Array.isArray(value)) {
    return `[${
      exactItems(value).map(([item, number]) => number ?? exactJsonText(item)).join(",")
    }]`;
  }
  if (typeof value !== "object" || value === null) return JSON.stringify(value) ?? "null";
  const fields = exactEntries(value as Record<string, unknown>).flatMap(([key, item, number]) =>
    item === undefined ? [] : [`${JSON.stringify(key)}:${number ?? exactJsonText(item)}`]
  );
  return `{${fields.join(",")}}`;
}

/** One object with the fields of several, of which later ones win; `...` would keep the notes of one. */
export function mergeExact(
  ...objects: readonly (Readonly<Record<string, unknown>> | undefined)[]
): Record<string, unknown> {
  const merged: Record<string, unknown> = {}, numbers = new Map<string, string>();
  for (const [key, value, number] of objects.flatMap((object) => exactEntries(object ?? {}))) {
    merged[key] = value;
    numbers.delete(key);
    if (number !== undefined) numbers.set(key, number);
  }
  return note(merged, { numbers }) as Record<string, unknown>;
}

/** The noted form of a number, unless another value has taken its place. */
function numberText(value: unknown, noted: string | undefined): string | undefined {
  return noted !== undefined && Object.is(Number(noted), value) ? noted : undefined;
}

/** Reads a text that is known to be valid JSON. */
class Reader {
  #at = 0;

  constructor(private readonly text: string) {}

  value(): unknown {
    const next = this.#skip();
    if (next === "{") return this.#object();
    if (next === "[") return this.#array();
    if (next !== '"') return JSON.parse(this.#match(/[^\s,\]}]+/y)[0]);
    const from = this.#at;
    this.#at = stringEnd(this.text, from);
    return JSON.parse(this.text.slice(from, this.#at));
  }

  #object(): unknown {
    const object: Record<string, unknown> = {},
      keys = new Set<string>(),
      numbers = new Map<string, string>();
    this.#at++;
    while (this.#skip() !== "}") {
      const key = this.value() as string;
      this.#skip(":");
      keys.add(key);
      // Defined, not assigned: the key may be `__proto__`.
      const value = this.#child(key, numbers);
      Object.defineProperty(object, key, {
        value,
        configurable: true,
        enumerable: true,
        writable: true,
      });
      this.#skip(",");
    }
    this.#at++;
    const ordered = [...keys].some((key) => INTEGER_KEY.test(key)) ? { keys: [...keys] } : {};
    return note(object, { ...ordered, numbers });
  }

  #array(): unknown {
    const array: unknown[] = [], numbers = new Map<string, string>();
    this.#at++;
    while (this.#skip() !== "]") {
      array.push(this.#child(String(array.length), numbers));
      this.#skip(",");
    }
    this.#at++;
    return note(array, { numbers });
  }

  #child(key: string, numbers: Map<string, string>): unknown {
    this.#skip();
    const from = this.#at, value = this.value();
    const text = this.text.slice(from, this.#at);
    numbers.delete(key);
    if (typeof value === "number" && isLost(text)) numbers.set(key, text);
    return value;
  }

  /** The next character that is not blank; `token` is taken if it is next. */
  #skip(token?: string): string | undefined {
    this.#match(/\s*/y);
    if (token !== undefined && this.text[this.#at] === token) this.#at++;
    return this.text[this.#at];
  }

  #match(pattern: RegExp): RegExpExecArray {
    pattern.lastIndex = this.#at;
    const match = pattern.exec(this.text)!;
    this.#at += match[0].length;
    return match;
  }
}

function note(value: object, lost: Lost): unknown {
  if (!lost.keys && lost.numbers.size === 0) return value;
  // Enumerable, so that a copy of an object has it too.
  return Object.assign(value, { [LOST]: lost });
}
