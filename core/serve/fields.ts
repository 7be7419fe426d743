/**
 * Checks the fields of a request body: one function per kind of value, with the field's name in errors.
 *
 * As in the API, null is the same as absent.
 */
import { isObject, type JsonObject, show } from "../base/files.ts";
import { badField } from "./errors.ts";

/** A body that is being read. */
export class Fields {
  readonly #body: JsonObject;

  constructor(body: unknown) {
    if (!isObject(body)) throw badField("body", "the request body is not a JSON object");
    this.#body = body;
  }

  /** Names of the fields that have a value. */
  get names(): string[] {
    return Object.keys(this.#body).filter((name) => this.get(name) !== undefined);
  }

  /** The value as it is; undefined for null, and for what every object inherits. */
  get(name: string): unknown {
    return Object.hasOwn(this.#body, name) ? this.#body[name] ?? undefined : undefined;
  }

  number(name: string, fallback: number, range: { min?: number; above?: number; max?: number }) {
    const value = this.get(name);
    if (value === undefined) return fallback;
    const { min = -Infinity, above = -Infinity, max = Infinity } = range;
    if (typeof value === "number" && value >= min && value > above && value <= max) return value;
    const low = range.min === undefined ? `above ${range.above}` : `of at least ${range.min}`;
    const high = range.max === undefined ? "" : ` and at most ${range.max}`;
    throw badField(name, `\`${name}\` needs a number ${low}${high}, not ${show(value)}`);
  }

  integer(name: string, { min, max }: { min: number; max: number }): number | undefined {
    const value = this.get(name);
    if (value === undefined) return undefined;
    if (Number.isInteger(value) && (value as number) >= min && (value as number) <= max) {
      return value as number;
    }
    throw badField(name, `\`${name}\` needs an integer from ${min} to ${max}, not ${show(value)}`);
  }

  boolean(name: string, otherwise = false): boolean {
    const value = this.get(name);
    if (value === undefined || typeof value === "boolean") return value ?? otherwise;
    throw badField(name, `\`${name}\` needs true or false, not ${show(value)}`);
  }

  text(name: string): string | undefined {
    const value = this.get(name);
    if (value === undefined || typeof value === "string") return value;
    throw badField(name, `\`${name}\` needs a string, not ${show(value)}`);
  }

  /** A string or a list of strings, with limits on their number and on their characters together. */
  texts(name: string, limits: { readonly count: number; readonly characters: number }): string[] {
    const value = this.get(name) ?? [];
    const list = typeof value === "string" ? [value] : value;
    if (!Array.isArray(list) || !list.every((one) => typeof one === "string")) {
      throw badField(name, `\`${name}\` needs a string or a list of strings, not ${show(value)}`);
    }
    const characters = list.reduce((sum, { length }) => sum + length, 0);
    if (list.length <= limits.count && characters <= limits.characters) return list;
    throw badField(
      name,
      `\`${name}\` has ${list.length} strings of ${characters} characters, at most ` +
        `${limits.count} of ${limits.characters} together are allowed`,
    );
  }

  /** An object, with the fields that are not known refused. */
  object(name: string, known: readonly string[]): Fields {
    const value = this.get(name) ?? {};
    if (!isObject(value)) throw badField(name, `\`${name}\` needs an object, not ${show(value)}`);
    const other = Object.keys(value).find((key) => !known.includes(key));
    if (other === undefined) return new Fields(value);
    throw badField(name, `unknown field ${show(other)} in \`${name}\``);
  }
}
