/** A worker that follows texts through grammars, for one vocabulary. See `engine.ts`. */
/// <reference no-default-lib="true" />
/// <reference lib="deno.worker" />
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { DataError, ParscaleError } from "../base/errors.ts";
import { parseExactJson } from "../base/exact_json.ts";
import { TooMuchWork } from "./automaton.ts";
import { keepLast } from "../base/recent.ts";
import { answerQuestions } from "../base/thread_worker.ts";
import { openTokenizer } from "../tokenizer/tokenizer.ts";
import type { DroppedGrammar, GrammarAnswer, GrammarQuestion, Vocabulary } from "./engine.ts";
import { Matcher } from "./matcher.ts";
import { networkOf } from "./network.ts";
import { schemaGrammar } from "./schema.ts";
import { tokenBytes } from "./token_bytes.ts";
import { TokenMasks } from "./token_masks.ts";

/** Grammars that are kept, and bytes of all together; others are sent again when they are needed. */
const MAX_GRAMMARS = 32, MAX_BYTES = 128 << 20;

interface Opened {
  readonly tokens: readonly Uint8Array[];
  readonly masks: TokenMasks;
}

let opened: Promise<Opened> | undefined;
const matchers = new Map<string, Matcher>();

async function open({ directory, vocabSize, stopTokenIds }: Vocabulary): Promise<Opened> {
  const tokens = tokenBytes(await openTokenizer(directory), vocabSize);
  return { tokens, masks: new TokenMasks(tokens, stopTokenIds) };
}

/** The mask after these tokens, by what the matcher has seen of the text already. */
async function maskOf({ key, opening, text, tokens }: GrammarQuestion): Promise<GrammarAnswer> {
  const matcher = matchers.get(key) ?? (opening && await newMatcher(opening));
  if (!matcher) return undefined;
  keepLast(matchers, key, matcher, MAX_GRAMMARS);
  const before = matcher.work;
  try {
    const mask = matcher.mask(text, tokens);
    dropLarge();
    return { mask, work: matcher.work - before };
  } catch (error) {
    if (error instanceof TooMuchWork) drop(key);
    throw error;
  }
}

/** A schema is refused before the vocabulary is read. */
async function newMatcher(
  { source, vocabulary }: NonNullable<GrammarQuestion["opening"]>,
): Promise<Matcher> {
  const grammar = "schema" in source ? schemaGrammar(parseExactJson(source.schema)) : source;
  const network = networkOf(grammar);
  const { tokens, masks } = await (opened ??= open(vocabulary));
  return new Matcher(network, tokens, masks);
}

/** Drops a grammar and frees its memory, which an idle thread would keep. */
function drop(key: string): void {
  matchers.delete(key);
  setFlagsFromString("--expose-gc");
  runInNewContext("gc")();
}

/** Drops grammars that were not used for longest, until the others are small enough. */
function dropLarge(): void {
  let size = [...matchers.values()].reduce((sum, { size }) => sum + size, 0);
  for (const [key, matcher] of matchers) {
    if (size <= MAX_BYTES) return;
    size -= matcher.size;
    matchers.delete(key);
  }
}

answerQuestions(
  async (question: GrammarQuestion | DroppedGrammar): Promise<GrammarAnswer> => {
    if ("dropped" in question) return void drop(question.dropped);
    try {
      return await maskOf(question);
    } catch (error) {
      throw error instanceof ParscaleError ? error : new DataError((error as Error).message);
    }
  },
  (answer) => answer ? [answer.mask.buffer] : [],
);
