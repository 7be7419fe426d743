/** Random walks through the masks of schemas, and documents along them, all of which `ajv` checks. */
import { fileURLToPath } from "node:url";
import { Ajv2020 } from "npm:ajv@8.20.0/dist/2020.js";
import { DataError } from "../../core/base/errors.ts";
import { parseExactJson } from "../../core/base/exact_json.ts";
import { Matcher } from "../../core/grammar/matcher.ts";
import { networkOf } from "../../core/grammar/network.ts";
import { schemaGrammar } from "../../core/grammar/schema.ts";
import { tokenBytes } from "../../core/grammar/token_bytes.ts";
import { TokenTrie } from "../../core/grammar/token_trie.ts";
import { openTokenizer } from "../../core/tokenizer/tokenizer.ts";
import { randomDocument } from "./documents.ts";
import type { Dice, Schema } from "./schemas.ts";

const MODEL = fileURLToPath(new URL("../../fixtures/models/tiny-qwen2", import.meta.url));

const tokenizer = await openTokenizer(MODEL);
const END = tokenizer.vocabSize;
const vocabulary = tokenBytes(tokenizer, END);
const trie = new TokenTrie([...vocabulary, new Uint8Array()], [END]);

/** Counts of what was tried. */
export interface Tried {
  refused: number;
  samples: number;
  documents: number;
}

/** Tokens that bring a text to its end. */
const CLOSING = ['"', "}", "]", '"}', "e", "l", "0"].map((text) => tokenizer.encode(text)[0]!);

/**
 * Tries a schema: texts along its masks are valid, and valid documents are along its masks.
 * @throws an error that shows the schema and the text
 */
export function trySchema(
  schema: Schema,
  dice: Dice,
  { samples, documents }: { readonly samples: number; readonly documents: number },
): Tried {
  const text = JSON.stringify(schema), exact = parseExactJson(text);
  const tried = { refused: 0, samples: 0, documents: 0 };
  let matcher: Matcher;
  try {
    matcher = new Matcher(networkOf(schemaGrammar(exact)), vocabulary, trie);
  } catch (error) {
    if (!(error instanceof DataError)) throw error;
    return { ...tried, refused: 1 };
  }
  const ajv = new Ajv2020({ strict: false, validateFormats: false });
  const validate = ajv.compile(schema);
  for (let i = 0; i < samples; i++) {
    const answer = walk(matcher, i, dice);
    if (answer === undefined) continue;
    tried.samples++;
    if (!validate(JSON.parse(answer))) throw new Error(`${text} allowed ${answer}`);
  }
  for (let i = 0; i < documents; i++) {
    const document = randomDocument(exact, exact, dice);
    if (document === undefined || !validate(JSON.parse(document))) continue;
    tried.documents++;
    const tokens = tokenizer.encode(document);
    for (let length = 0; length <= tokens.length; length++) {
      const next = tokens[length] ?? END;
      const isAllowed = isSet(matcher.mask(samples + i, tokens.slice(0, length)), next);
      if (!isAllowed) throw new Error(`${text} did not allow ${document} at token ${length}`);
    }
  }
  return tried;
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

/** Schemas in the manner of public programming interfaces, by name. */
export function apiSchemas(): readonly { readonly name: string; readonly schema: Schema }[] {
  const path = new URL("../../fixtures/schemas/apis.jsonl", import.meta.url);
  return Deno.readTextFileSync(path).trim().split("\n").map((line) => JSON.parse(line));
}
