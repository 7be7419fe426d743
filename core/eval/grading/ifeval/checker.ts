/**
 * Definition of a checker of one instruction, and validation of its arguments.
 *
 * A checker declares the arguments it takes and gets them typed. An argument that is null, zero or
 * empty counts as missing, as in the reference, which would then make one up; here the row is
 * refused.
 */
import { DataError } from "../../../base/errors.ts";
import { pythonRegex } from "../../python/text.ts";
import type { LanguageTools } from "./language_tools.ts";

/** Comparison of a count with its threshold. */
export type Relation = "less than" | "at least";

/** Kinds of arguments and what they hold. */
interface Values {
  readonly count: number;
  readonly relation: Relation;
  readonly text: string;
  readonly "text or nothing": string | undefined;
  /** A piece of a regular expression. */
  readonly pattern: string;
  readonly patterns: readonly string[];
}

/** Arguments of a checker by name. */
type Takes = Readonly<Record<string, keyof Values>>;

/** Input of a checker besides the response. */
export interface Context {
  readonly tools: LanguageTools;
  /** Prompt of the response, where known. */
  readonly prompt: string | undefined;
}

/** The rule of one instruction id. */
export interface Checker {
  readonly takes: Takes;
  readonly check: (
    response: string,
    args: Readonly<Record<string, unknown>>,
    context: Context,
  ) => boolean;
}

/** Checkers by the part of the id after the colon. */
export type Family = Readonly<Record<string, Checker>>;

/** Builds a checker that gets the arguments it declares. */
export function checker<T extends Takes>(
  takes: T,
  check: (
    response: string,
    args: { readonly [K in keyof T]: Values[T[K]] },
    context: Context,
  ) => boolean,
): Checker {
  return { takes, check: check as Checker["check"] };
}

/** Returns whether a count keeps the relation. */
export function holds(count: number, relation: Relation, threshold: number): boolean {
  return relation === "less than" ? count < threshold : count >= threshold;
}

/** Counts the matches of a Python pattern, without overlaps. */
export function countMatches(response: string, pattern: string, flags = ""): number {
  return response.match(pythonRegex(pattern, `g${flags}`))?.length ?? 0;
}

const isText = (value: unknown) => typeof value === "string";

/** Words for arguments of a kind in messages, and their check. */
const KINDS: Readonly<
  Record<keyof Values, readonly [expected: string, accepts: (value: unknown) => boolean]>
> = {
  count: ["a positive integer", (value) => Number.isInteger(value) && (value as number) > 0],
  relation: [`"less than" or "at least"`, (value) => value === "less than" || value === "at least"],
  text: ["a text", isText],
  "text or nothing": ["a text or nothing", (value) => value === undefined || isText(value)],
  pattern: ["a text", isText],
  patterns: [
    "a list of texts",
    (value) => Array.isArray(value) && value.length > 0 && value.every(isText),
  ],
};

/** @throws {DataError} when an argument is missing or of another kind */
export function requireArguments(
  { takes }: Checker,
  args: Readonly<Record<string, unknown>>,
  place: string,
): void {
  for (const [name, kind] of Object.entries(takes)) {
    const value = args[name], [expected, accepts] = KINDS[kind];
    if (!accepts(value)) {
      const found = value === undefined ? "is missing" : `is ${JSON.stringify(value)}`;
      throw new DataError(`"${name}" of ${place} ${found}, expected ${expected}`);
    }
    if (kind === "pattern") pythonRegex(value as string);
    if (kind === "patterns") { for (const each of value as string[]) pythonRegex(each); }
  }
}
