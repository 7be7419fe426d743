/** Options that come from programs, and their checks, where no flag table has seen them. */
import { UsageError } from "../base/errors.ts";
import type { SamplingOptions } from "../base/sampling.ts";

/** How to continue a prompt; greedy unless told. */
export interface GenerateOptions extends Partial<SamplingOptions> {
  /** At most this many new tokens; 128 unless told. */
  readonly maxTokens?: number;
  /** Strings that end the text and are not part of it. */
  readonly stop?: readonly string[];
  /** Seed of the random numbers; the same seed gives the same text, whatever shares the batch. */
  readonly seed?: number;
  /** Ends the generation between two tokens; its reason is thrown. */
  readonly signal?: AbortSignal;
}

/** How to continue several prompts. */
export interface BatchOptions extends GenerateOptions {
  /** Prompts computed together; 8 unless told. */
  readonly batch?: number;
}

/** What an option must be: the test and its words. */
type Rule = readonly [holds: (value: unknown) => boolean, words: string];

const number = (from: number, to: number, words: string): Rule => [
  (value) => typeof value === "number" && value >= from && value <= to,
  words,
];
const whole = (from: number): Rule => [
  (value) => Number.isSafeInteger(value) && (value as number) >= from,
  `an integer of at least ${from}`,
];

const RULES: Readonly<Record<keyof BatchOptions, Rule>> = {
  maxTokens: whole(1),
  temperature: number(0, Number.MAX_VALUE, "a number of at least 0"),
  topK: whole(0),
  topP: number(Number.MIN_VALUE, 1, "a number above 0 and at most 1"),
  minP: number(0, 1, "a number from 0 to 1"),
  repetitionPenalty: number(Number.MIN_VALUE, Number.MAX_VALUE, "a number above 0"),
  stop: [
    (value) => Array.isArray(value) && value.every((one) => typeof one === "string"),
    "a list of strings",
  ],
  seed: whole(0),
  signal: [(value) => value instanceof AbortSignal, "an AbortSignal"],
  batch: whole(1),
};

/** @throws {UsageError} for an option that is unknown or out of range */
export function checkGenerateOptions(options: BatchOptions): void {
  for (const [name, value] of Object.entries(options)) {
    if (value === undefined) continue;
    if (!Object.hasOwn(RULES, name)) {
      throw new UsageError(`unknown option ${name}`, {
        hints: [`options are ${Object.keys(RULES).join(", ")}`],
      });
    }
    const [holds, words] = RULES[name as keyof BatchOptions];
    if (!holds(value)) {
      throw new UsageError(`option ${name} must be ${words}, not ${String(value)}`);
    }
  }
}
