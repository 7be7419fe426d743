/** Options of the library's functions, and the rules that check them. */
import { UsageError } from "../base/errors.ts";
import { isObject } from "../base/files.ts";
import type { SamplingOptions } from "../base/sampling.ts";
import type { LogitRules } from "../generate/logit_rules.ts";

/** Options of continuing a prompt; greedy unless told. */
export interface GenerateOptions extends Partial<SamplingOptions> {
  /** At most this many new tokens; 128 unless told. */
  readonly maxTokens?: number;
  /** Strings that end the text and are not part of it. */
  readonly stop?: readonly string[];
  /** A JSON Schema that the text matches, or true for any JSON object. */
  readonly jsonSchema?: object | boolean | undefined;
  /** Seed of the random numbers; the same seed gives the same text, whatever shares the batch. */
  readonly seed?: number;
  /** Ends the generation between two tokens, or two chunks of a prompt; its reason is thrown. */
  readonly signal?: AbortSignal;
}

/** Options of a beam search over the continuations of a prompt. */
export interface BeamSearchOptions
  extends LogitRules, Pick<GenerateOptions, "maxTokens" | "stop" | "jsonSchema"> {
  /** Sequences kept at every token; 4 unless told. */
  readonly numBeams?: number;
  /** Scores are divided by length to the power of it; 1 unless told. */
  readonly lengthPenalty?: number;
  /** Condition that ends the search, as in transformers; false unless told. */
  readonly earlyStopping?: boolean | "never";
  /** Tokens that end a sequence; those of the checkpoint unless told. */
  readonly eosTokenIds?: readonly number[];
}

/** Options of continuing several prompts. */
export interface BatchOptions extends GenerateOptions {
  /** Prompts computed together; 8 unless told. */
  readonly batch?: number;
}

/** Returns the sampling options; greedy unless told. */
export function samplingOf(options: Partial<SamplingOptions>): SamplingOptions {
  const { temperature = 0, topK = 0, topP = 1, minP = 0 } = options;
  const { repetitionPenalty, frequencyPenalty, presencePenalty, logitBias } = options;
  const rules = { repetitionPenalty, frequencyPenalty, presencePenalty, logitBias };
  const given = Object.entries(rules).filter(([, value]) => value !== undefined);
  return { temperature, topK, topP, minP, ...Object.fromEntries(given) };
}

/** Rule of an option: the test and its words. */
export type Rule = readonly [holds: (value: unknown) => boolean, words: string];

/** Returns the rule of a number in a range. */
export const number = (from: number, to: number, words: string): Rule => [
  (value) => typeof value === "number" && value >= from && value <= to,
  words,
];
/** Returns the rule of an integer. */
export const whole = (from: number): Rule => [
  (value) => Number.isSafeInteger(value) && (value as number) >= from,
  `an integer of at least ${from}`,
];

/** Returns the rule of one of several words. */
export const oneOf = (...choices: readonly string[]): Rule => [
  (value) => choices.includes(value as string),
  [...choices.slice(0, -2), choices.slice(-2).join(" or ")].join(", "), // Intl takes 10 ms
];
/** Rule of a switch. */
export const SWITCH: Rule = [(value) => typeof value === "boolean", "true or false"];
/** Rule of a path. */
export const PATH: Rule = [(value) => typeof value === "string", "a path"];
/** Rule of a signal. */
export const SIGNAL: Rule = [(value) => value instanceof AbortSignal, "an AbortSignal"];

const penalty = number(-2, 2, "a number from -2 to 2");

const jsonSchema: Rule = [
  (value) => isObject(value) || typeof value === "boolean",
  "a JSON Schema, or true for any JSON object",
];

const LOGIT_RULES: Readonly<Record<keyof LogitRules, Rule>> = {
  repetitionPenalty: number(Number.MIN_VALUE, Number.MAX_VALUE, "a number above 0"),
  frequencyPenalty: penalty,
  presencePenalty: penalty,
  logitBias: [
    (value) =>
      value instanceof Map &&
      value.entries().every(([id, bias]) =>
        Number.isSafeInteger(id) && id >= 0 && Number.isFinite(bias)
      ),
    "a Map from token ids to numbers",
  ],
};

/** Rules for the options of `generate`. */
export const GENERATE_RULES: Readonly<Record<keyof BatchOptions, Rule>> = {
  ...LOGIT_RULES,
  maxTokens: whole(1),
  temperature: number(0, Number.MAX_VALUE, "a number of at least 0"),
  topK: whole(0),
  topP: number(Number.MIN_VALUE, 1, "a number above 0 and at most 1"),
  minP: number(0, 1, "a number from 0 to 1"),
  stop: [
    (value) => Array.isArray(value) && value.every((one) => typeof one === "string"),
    "a list of strings",
  ],
  jsonSchema,
  seed: whole(0),
  signal: SIGNAL,
  batch: whole(1),
};

/** Rules for the options of `beamSearch`. */
export const BEAM_RULES: Readonly<Record<keyof BeamSearchOptions, Rule>> = {
  ...LOGIT_RULES,
  maxTokens: GENERATE_RULES.maxTokens,
  stop: GENERATE_RULES.stop,
  jsonSchema,
  numBeams: [(value) => whole(1)[0](value) && (value as number) <= 256, "an integer from 1 to 256"],
  lengthPenalty: number(-Number.MAX_VALUE, Number.MAX_VALUE, "a number"),
  earlyStopping: [
    (value) => [true, false, "never"].includes(value as boolean),
    'a boolean or "never"',
  ],
  eosTokenIds: [
    (value) => Array.isArray(value) && value.every((id) => Number.isSafeInteger(id) && id >= 0),
    "a list of token ids",
  ],
};

/** @throws {UsageError} for an option that is unknown or out of range */
export function checkOptions(options: object, rules: Readonly<Record<string, Rule>>): void {
  for (const [name, value] of Object.entries(options)) {
    if (value === undefined) continue;
    if (!Object.hasOwn(rules, name)) {
      throw new UsageError(`unknown option ${name}`, {
        hints: [`options are ${Object.keys(rules).join(", ")}`],
      });
    }
    const [holds, words] = rules[name]!;
    if (!holds(value)) {
      throw new UsageError(`option ${name} must be ${words}, not ${String(value)}`);
    }
  }
}
