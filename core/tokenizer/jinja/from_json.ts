/** Values of a template from those of a program: JSON, with digits and order as they were written. */
import { exactEntries, exactItems } from "../../base/exact_json.ts";
import { isObject } from "../../base/files.ts";
import { Dict, type Value } from "./values.ts";

/** The value that Python's `json.loads` makes of a JSON value. @throws {Error} for a value that JSON lacks */
export function fromJson(value: unknown, number?: string): Value {
  switch (typeof value) {
    case "string":
    case "boolean":
    case "bigint":
      return value;
    case "number": {
      const text = number ?? String(value);
      return /^-?\d+$/.test(text) ? BigInt(text) : value;
    }
    case "object":
      if (value === null) return null;
      if (Array.isArray(value)) {
        return exactItems(value).map(([item, text]) => fromJson(item, text));
      }
      if (isObject(value)) return dictOf(value);
  }
  throw new Error(`a ${typeof value} cannot be a value of a template`);
}

function dictOf(object: Readonly<Record<string, unknown>>): Dict {
  const entries = exactEntries(object).filter(([, value]) => value !== undefined);
  return new Dict(entries.map(([key, value, text]) => [key, fromJson(value, text)]));
}
