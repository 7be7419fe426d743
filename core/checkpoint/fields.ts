/** Typed reading of the fields of a `config.json`; a field of another type is bad data. */
import { DataError } from "../base/errors.ts";
import { type JsonObject, show } from "../base/files.ts";

/** Larger sizes mean a damaged file. */
const MAX_SIZE = 2 ** 31 - 1;

/** The fields of one file, or of an object in it. */
export class Fields {
  constructor(readonly json: JsonObject, readonly path: string) {}

  integer(key: string, fallback: number, low = 1, high = MAX_SIZE): number {
    const value = this.json[key] ?? fallback;
    if (Number.isSafeInteger(value) && (value as number) >= low && (value as number) <= high) {
      return value as number;
    }
    throw this.error(key, `an integer from ${low} to ${high}`);
  }

  /** A number of a range, both ends included; without a fallback the field is required. */
  within(key: string, { low, high }: { low: number; high: number }, fallback?: number): number {
    const value = this.json[key] ?? fallback;
    if (typeof value === "number" && value >= low && value <= high) return value;
    throw this.error(key, `a number from ${low} to ${high}`);
  }

  boolean(key: string, fallback: boolean): boolean {
    const value = this.json[key] ?? fallback;
    if (typeof value === "boolean") return value;
    throw this.error(key, "true or false");
  }

  /** A SHA-256 in hexadecimal. */
  sha256(key: string): string {
    const value = this.json[key];
    if (typeof value === "string" && /^[0-9a-f]{64}$/.test(value)) return value;
    throw this.error(key, "64 hexadecimal digits");
  }

  /** An error about a field; `wanted` completes "… must be". */
  error(key: string, wanted: string, hints: string[] = []): DataError {
    const value = this.json[key];
    const message = value === undefined
      ? `"${this.path}" lacks ${key}, which must be ${wanted}`
      : `${key} in "${this.path}" must be ${wanted}, not ${show(value)}`;
    return new DataError(message, { hints });
  }

  /** An error about a model that is refused for the value of a field, which the message shows. */
  refusal(problem: string, key: string, hints: string[] = []): DataError {
    const message = `${problem}: ${key} is ${show(this.json[key])} in "${this.path}"`;
    return new DataError(message, { hints });
  }
}
