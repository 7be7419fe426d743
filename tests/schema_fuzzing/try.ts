/** Random walks through the masks of schemas, and documents along them, all of which `ajv` checks. */
import { Ajv2020 } from "npm:ajv@8.20.0/dist/2020.js";
import { DataError } from "../../core/base/errors.ts";
import { parseExactJson } from "../../core/base/exact_json.ts";
import { FORMATS } from "../../core/grammar/formats.ts";
import type { Grammar } from "../../core/grammar/expression.ts";
import { Matcher } from "../../core/grammar/matcher.ts";
import { networkOf } from "../../core/grammar/network.ts";
import { schemaGrammar } from "../../core/grammar/schema.ts";
import { tokenBytes } from "../../core/grammar/token_bytes.ts";
import { TokenMasks } from "../../core/grammar/token_masks.ts";
import { ApiError } from "../../core/serve/errors.ts";
import { Fields } from "../../core/serve/fields.ts";
import { droppedNote, readTools, toolFormatOf, toolGrammar } from "../../core/serve/tools.ts";
import { openTokenizer } from "../../core/tokenizer/tokenizer.ts";
import { randomDocument } from "./documents.ts";
import type { Dice, Schema } from "./schemas.ts";
import { fixtureRows, FIXTURES } from "../fixtures.ts";

const MODEL = `${FIXTURES}models/tiny-qwen2`;

const tokenizer = await openTokenizer(MODEL);
const END = tokenizer.vocabSize;
const vocabulary = tokenBytes(tokenizer, END);
const masks = new TokenMasks([...vocabulary, new Uint8Array()], [END]);

/** A schema that grammars support, with the check of `ajv`. */
export interface Supported {
  readonly text: string;
  /** The schema with the order of its keys and the digits of its numbers. */
  readonly exact: unknown;
  readonly validate: (value: unknown) => boolean;
  readonly matcher: Matcher;
}

/** Tokens that bring a text to its end. */
const CLOSING = ['"', "}", "]", '"}', "e", "l", "0"].map((text) => tokenizer.encode(text)[0]!);

/** Makes the grammar of a schema; undefined where it is refused. */
export function supported(schema: Schema): Supported | undefined {
  const text = JSON.stringify(schema), exact = parseExactJson(text);
  try {
    const matcher = matcherOf(schemaGrammar(exact));
    return { text, exact, validate: validatorOf(schema), matcher };
  } catch (error) {
    if (!(error instanceof DataError)) throw error;
    return undefined;
  }
}

/** The check of `ajv`; its option is for patterns that only other flags than `u` take. */
function validatorOf(schema: Schema): ReturnType<Ajv2020["compile"]> {
  const formats = Object.fromEntries(
    [...FORMATS].map(([name, one]) => [name, new RegExp(one, "u")]),
  );
  const options = { strict: false, formats, allErrors: true, logger: false as const };
  try {
    return new Ajv2020(options).compile(schema);
  } catch {
    return new Ajv2020({ ...options, unicodeRegExp: false }).compile(schema);
  }
}

/** A required call of a function with these parameters; undefined where it is refused. */
export function supportedTool(schema: Schema, strict?: boolean): Supported | undefined {
  const text = JSON.stringify(schema), exact = parseExactJson(text);
  const tools = [{ type: "function", function: { name: "f", parameters: exact, strict } }];
  try {
    const request = readTools(new Fields({ tools, tool_choice: "required" }))!;
    const grammar = toolGrammar(
      { ...request, isParallel: false },
      toolFormatOf("tools <tool_call>")!,
    );
    const { dropped } = request.tools[0]!;
    const left = JSON.stringify(exact, (_, value) => {
      const keywords = dropped.get(value);
      if (!keywords) return value;
      return Object.fromEntries(Object.entries(value).filter(([name]) => !keywords.has(name)));
    });
    const check = validatorOf(JSON.parse(left));
    const validate = (value: unknown) =>
      check((value as { arguments: unknown }).arguments) === true;
    return {
      text: `${text} ${droppedNote(request)}`,
      exact,
      validate,
      matcher: matcherOf(grammar!),
    };
  } catch (error) {
    if (error instanceof ApiError || error instanceof DataError) return undefined;
    throw error;
  }
}

function matcherOf(grammar: Grammar): Matcher {
  return new Matcher(networkOf(grammar), vocabulary, masks);
}

/**
 * Checks a number of texts of random tokens along the masks; fewer only where 20 times as many do not end.
 * Returns their number.
 * @throws an error that shows the schema and the text
 */
export function tryTexts(schema: Supported, dice: Dice, count: number): number {
  let done = 0;
  for (let i = 0; i < 20 * count && done < count; i++) {
    const answer = walk(schema.matcher, i, dice);
    if (answer === undefined) continue;
    requireValid(schema, answer);
    done++;
  }
  return done;
}

/**
 * Checks that the masks allow a number of valid documents; fewer only where 50 times as many are not valid.
 * Returns their number.
 * @throws an error that shows the schema and the document
 */
export function tryDocuments(schema: Supported, dice: Dice, count: number): number {
  const { text, exact, validate, matcher } = schema;
  let done = 0;
  for (let i = 0; i < 50 * count && done < count; i++) {
    const document = randomDocument(exact, exact, dice);
    if (document === undefined || !validate(JSON.parse(document))) continue;
    const tokens = tokenizer.encode(document);
    for (let length = 0; length <= tokens.length; length++) {
      const next = tokens[length] ?? END;
      const isAllowed = isSet(matcher.mask(-1 - i, tokens.slice(0, length)), next);
      if (!isAllowed) throw new Error(`${text} did not allow ${document} at token ${length}`);
    }
    done++;
  }
  return done;
}

/** @throws an error that shows the schema and the answer */
export function requireValid({ text, validate }: Supported, answer: string): void {
  let value: unknown;
  try {
    value = JSON.parse(answer.replace(/^<tool_call>|<\/tool_call>$/g, ""));
  } catch {
    throw new Error(`${text} allowed ${answer}, which is not JSON`);
  }
  if (!validate(value)) throw new Error(`${text} allowed ${answer}`);
}

/** A text of random tokens, or undefined for one that does not come to an end. */
function walk(matcher: Matcher, number: number, dice: Dice): string | undefined {
  const tokens: number[] = [];
  while (tokens.length < 400) {
    const mask = matcher.mask(number, tokens);
    const allowed: number[] = [];
    for (let id = 0; id <= END; id++) if (isSet(mask, id)) allowed.push(id);
    if (allowed.length === 0) throw new Error(`no token after ${tokenizer.decode(tokens)}`);
    const last = allowed.includes(END) && dice.is(0.5);
    const closing = CLOSING.filter((id) => isSet(mask, id));
    if (last) return tokenizer.decode(tokens);
    const next = tokens.length > 20 && closing.length > 0 && dice.is(0.6)
      ? dice.one(closing)
      : dice.one(allowed);
    if (next === END) return tokenizer.decode(tokens);
    tokens.push(next);
  }
}

function isSet(mask: Int32Array, id: number): boolean {
  return (mask[id >> 5]! >> (id & 31) & 1) === 1;
}

/** Schemas in the manner of public programming interfaces, or those that libraries make. */
export function apiSchemas(file: "apis" | "libraries" = "apis"): readonly Schema[] {
  return namedSchemas(file).map(({ schema }) => schema);
}

/** Schemas of a fixture by their names. */
export const namedSchemas = (file: string): readonly { name: string; schema: Schema }[] =>
  fixtureRows(`schemas/${file}.jsonl`);
