/**
 * A worker that compiles grammars for one vocabulary and follows texts through them, by XGrammar
 * (arXiv 2411.15100). See `engine.ts`.
 */
/// <reference no-default-lib="true" />
/// <reference lib="deno.worker" />
import { createRequire } from "node:module";
import type { CompiledGrammar, GrammarCompiler, GrammarMatcher } from "@mlc-ai/web-xgrammar";
import { openTokenizer, type Tokenizer } from "../tokenizer/tokenizer.ts";
import type { GrammarAnswer, GrammarQuestion, Vocabulary } from "./engine.ts";
import type { GrammarSource } from "./source.ts";

/** Grammars and texts that are kept; others are compiled and read again when they are needed. */
const MAX_GRAMMARS = 32, MAX_MATCHERS = 256;

/** White space between elements of JSON, so that a model cannot continue with it for ever. */
const MAX_WHITESPACE = 12;

/** A text on its way through a grammar. */
class Matcher {
  /** Tokens that were accepted. */
  readonly #tokens: number[] = [];

  constructor(private readonly matcher: GrammarMatcher) {}

  /** Goes to the place behind these tokens; false where the grammar does not allow one of them. */
  moveTo(tokens: readonly number[]): boolean {
    const seen = this.#tokens;
    let common = 0;
    while (common < seen.length && seen[common] === tokens[common]) common++;
    if (common < seen.length) this.matcher.rollBack(seen.length - common);
    seen.length = common;
    for (const token of tokens.slice(common)) {
      if (!this.matcher.acceptToken(token)) return false;
      seen.push(token);
    }
    return true;
  }

  /** Returns the mask of tokens that may come next. */
  async mask(): Promise<Int32Array<ArrayBuffer>> {
    return Int32Array.from(await this.matcher.getNextTokenBitmask());
  }

  dispose(): void {
    this.matcher.dispose();
  }
}

/** Last output of the library: the reason, where it gives up. */
let said = "";

const opened = Promise.withResolvers<{ compiler: GrammarCompiler; stopTokenIds: number[] }>();
const grammars = new Map<string, CompiledGrammar>();
const matchers = new Map<number, Matcher>();

/** The library, which is made for browsers: it looks for these names, and leaves its own behind. */
async function loadLibrary(): Promise<typeof import("@mlc-ai/web-xgrammar")> {
  const names = globalThis as unknown as Record<string, unknown>;
  names.require = createRequire(import.meta.url);
  names.__filename = "";
  console.error = console.warn = console.log = (...words: unknown[]) =>
    said += `${words.join(" ")}\n`;
  await import("@mlc-ai/web-xgrammar");
  return names.xgrammar as typeof import("@mlc-ai/web-xgrammar");
}

const library = loadLibrary();

async function open({ directory, vocabSize, stopTokenIds }: Vocabulary): Promise<void> {
  const { TokenizerInfo, GrammarCompiler } = await library;
  const tokenizer = await openTokenizer(directory);
  const tokens = Array.from({ length: vocabSize }, (_, id) => spelled(tokenizer, id));
  const kind = tokenizer.idOf("<0x0A>") === undefined ? "byte_level" : "byte_fallback";
  const info = await TokenizerInfo.createTokenizerInfo(tokens, kind, false, vocabSize, [
    ...stopTokenIds,
  ]);
  const compiler = await GrammarCompiler.createGrammarCompiler(info, false);
  opened.resolve({ compiler, stopTokenIds: [...stopTokenIds] });
}

/** Control characters, which JSON never needs and strings of limited length would let pass. */
// deno-lint-ignore no-control-regex
const CONTROL = /[\x00-\x09\x0b-\x1f]/;

/** A token as the vocabulary spells it; as nothing where it is special, which no grammar allows. */
function spelled(tokenizer: Tokenizer, id: number): string {
  if (id >= tokenizer.vocabSize) return "";
  const text = tokenizer.decode([id], { skipSpecial: true });
  return text === "" || CONTROL.test(text) ? "" : tokenizer.tokenText(id);
}

async function compile(source: GrammarSource): Promise<CompiledGrammar> {
  const { compiler } = await opened.promise;
  if (source.kind === "tags") {
    const tag = { type: "structural_tag", format: source.format };
    return await compiler.compileStructuralTag(JSON.stringify(tag));
  }
  const isObject = source.kind === "object";
  const schema = JSON.stringify(isObject ? { type: "object" } : source.schema);
  const [anyWhitespace, indent, separators] = [true, undefined, undefined];
  return await compiler.compileJSONSchema(
    schema,
    anyWhitespace,
    indent,
    separators,
    !isObject, // no properties that the schema does not name
    MAX_WHITESPACE,
  );
}

/** Puts an entry last, and drops the first one where there are too many. */
function keep<K, V extends { dispose(): void }>(map: Map<K, V>, key: K, value: V, most: number) {
  map.delete(key);
  map.set(key, value);
  if (map.size <= most) return;
  const [oldest, dropped] = map.entries().next().value!;
  map.delete(oldest);
  dropped.dispose();
}

/** The mask behind these tokens, by what the matcher of the text has seen already. */
async function maskOf({ key, source, text, tokens }: GrammarQuestion): Promise<GrammarAnswer> {
  const grammar = grammars.get(key) ?? (source && await compile(source));
  if (!grammar) return { isUnknown: true };
  keep(grammars, key, grammar, MAX_GRAMMARS);
  const matcher = matchers.get(text) ?? await newMatcher(grammar);
  keep(matchers, text, matcher, MAX_MATCHERS);
  if (!matcher.moveTo(tokens)) return { error: "the text does not match the grammar" };
  return { mask: await matcher.mask() };
}

async function newMatcher(grammar: CompiledGrammar): Promise<Matcher> {
  const { GrammarMatcher } = await library;
  const { stopTokenIds } = await opened.promise;
  return new Matcher(await GrammarMatcher.createGrammarMatcher(grammar, stopTokenIds));
}

/** Returns the library's last message without the place in its source. */
function reason(error: unknown): string {
  const line = said.split("\n").find((line) => line.includes("[FATAL]")) ?? "";
  const text = line.replace(/^.*?\[FATAL\] \S+:\d+: /, "").replace(
    /^Check failed: \(.*?\) is \w+: /,
    "",
  );
  return text === "" ? String(error) : text;
}

/** Ends when all earlier messages are answered. */
let last = Promise.resolve();

self.onmessage = ({ data }: MessageEvent<Vocabulary | GrammarQuestion>) => {
  last = last.then(async () => {
    if ("directory" in data) return await open(data).then(() => self.postMessage("open"));
    said = "";
    const answer = await maskOf(data).catch((error) => ({ error: reason(error), isBroken: true }));
    self.postMessage(answer, "mask" in answer ? [answer.mask.buffer] : []);
  });
};
