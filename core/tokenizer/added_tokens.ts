/**
 * Tokens outside the merges, such as `<|im_end|>`: reading them from files, finding them in text.
 *
 * Takes `added_tokens` of tokenizer.json and `added_tokens_decoder` of tokenizer_config.json, which
 * list the same tokens or add to each other. Not all of them are "special": `<tool_call>` is found
 * as one token in any text and stays when special tokens are left out of decoded text.
 */
import { isObject, type JsonObject, show } from "../base/files.ts";
import { DataError } from "../base/errors.ts";
import { MAX_TOKEN_ID } from "./vocabulary.ts";
import type { WordSplitter } from "./word_splitter.ts";

/** A token outside the merges. */
export interface AddedToken {
  readonly id: number;
  readonly content: string;
  readonly special: boolean;
  /** Matched in the normalized text, not in the text as given. */
  readonly normalized: boolean;
  /** Includes the white space on its left. */
  readonly lstrip: boolean;
  /** Includes the white space on its right. */
  readonly rstrip: boolean;
}

/** Reads and unites both lists; `paths` name the two files in messages. */
export function readAddedTokens(
  settings: JsonObject,
  config: JsonObject,
  paths: { readonly settings: string; readonly config: string },
): AddedToken[] {
  const tokens = new Map<number, AddedToken>();
  const listed = settings.added_tokens ?? [];
  if (!Array.isArray(listed)) throw badTokens(paths.settings, "added_tokens", listed);
  for (const entry of listed) {
    const token = parseToken(entry, isObject(entry) ? entry.id : undefined, paths.settings);
    if (tokens.has(token.id)) throw duplicate(paths.settings, token, tokens.get(token.id)!);
    tokens.set(token.id, token);
  }
  const decoder = config.added_tokens_decoder ?? {};
  if (!isObject(decoder)) throw badTokens(paths.config, "added_tokens_decoder", decoder);
  for (const [id, entry] of Object.entries(decoder)) {
    const token = parseToken(entry, /^\d+$/.test(id) ? Number(id) : id, paths.config);
    const known = tokens.get(token.id);
    if (known && known.content !== token.content) throw duplicate(paths.config, token, known);
    if (!known) tokens.set(token.id, token);
  }
  const byContent = new Map<string, AddedToken>();
  for (const token of tokens.values()) {
    const other = byContent.get(token.content);
    if (other) {
      const ids = `${other.id} and ${token.id}`, text = show(token.content);
      throw new DataError(`added token ${text} in "${paths.settings}" has two ids: ${ids}`);
    }
    byContent.set(token.content, token);
  }
  return [...tokens.values()];
}

/** Most characters of a token: one expression looks for all of them. */
const MAX_LENGTH = 1000;

/** Roles of special tokens, in the order in which transformers adds those that are new. */
const ROLES = "bos eos unk sep pad cls mask".split(" ").map((role) => `${role}_token`);

/**
 * Adds the special tokens that only `tokenizer_config.json` names, as transformers does: those of the
 * vocabulary have their ids there, others come after all ids.
 */
export function addNamedTokens(
  tokens: readonly AddedToken[],
  config: JsonObject,
  vocabulary: { readonly size: number; idOf(token: string): number | undefined },
): AddedToken[] {
  const all = new Map(tokens.map((token) => [token.content, token]));
  let next = tokens.reduce((next, { id }) => Math.max(next, id + 1), vocabulary.size);
  const roles = Object.keys(config).filter((key) => key.endsWith("_token"));
  const extra = config.extra_special_tokens ?? config.additional_special_tokens;
  const named = [...new Set([...ROLES, ...roles])].map((role) => config[role])
    .concat(Array.isArray(extra) || isObject(extra) ? Object.values(extra) : []);
  for (const value of named) {
    const { content, lstrip, rstrip } = isObject(value) ? value : { content: value };
    if (typeof content !== "string" || content === "") continue;
    const known = all.get(content) ?? {
      id: vocabulary.idOf(content) ?? next++,
      content,
      normalized: false,
      lstrip: lstrip === true,
      rstrip: rstrip === true,
    };
    all.set(content, { ...known, special: true });
  }
  const long = [...all.keys()].find(({ length }) => length > MAX_LENGTH);
  if (long !== undefined) {
    throw new DataError(
      `added token ${show(long)} has ${long.length} characters, over ${MAX_LENGTH}`,
    );
  }
  return [...all.values()];
}

function parseToken(entry: unknown, id: unknown, path: string): AddedToken {
  if (!isObject(entry)) throw badTokens(path, "an added token", entry);
  const { content } = entry;
  const isId = typeof id === "number" && Number.isInteger(id) && id >= 0 && id < MAX_TOKEN_ID;
  if (!isId) throw badTokens(path, `id of added token ${show(content)}`, id);
  if (typeof content !== "string" || content === "") {
    throw badTokens(path, `content of added token ${id}`, content);
  }
  if (entry.single_word === true) {
    throw new DataError(
      `added token ${show(content)} in "${path}" has single_word true, which is not supported`,
      { hints: ["set single_word to false if the token may stand inside a word"] },
    );
  }
  const special = entry.special === true;
  return {
    id,
    content,
    special,
    normalized: typeof entry.normalized === "boolean" ? entry.normalized : !special,
    lstrip: entry.lstrip === true,
    rstrip: entry.rstrip === true,
  };
}

/** An error about `value`; `what` says which part of the file it is. */
function badTokens(path: string, what: string, value: unknown): DataError {
  return new DataError(
    `"${path}" has ${show(value)} as ${what}: added tokens are ids below ${MAX_TOKEN_ID} with text`,
  );
}

function duplicate(path: string, token: AddedToken, other: AddedToken): DataError {
  const both = `${show(token.content)} and ${show(other.content)}`;
  return new DataError(`added tokens ${both} in "${path}" have the same id ${token.id}`);
}

/** Cuts text at a set of added tokens. */
export class AddedTokenFinder {
  readonly #tokens: ReadonlyMap<string, AddedToken>;
  /** Longest first, so that the longest wins where several start. */
  readonly #pattern: RegExp | undefined;

  constructor(tokens: readonly AddedToken[], private readonly splitter: WordSplitter) {
    this.#tokens = new Map(tokens.map((token) => [token.content, token]));
    if (tokens.length === 0) return;
    const contents = [...this.#tokens.keys()].sort((a, b) => b.length - a.length);
    this.#pattern = new RegExp(contents.map((content) => RegExp.escape(content)).join("|"), "g");
  }

  /** The text between tokens (never empty) and the tokens, in order. */
  *split(text: string): Generator<string | AddedToken> {
    let at = 0;
    for (const match of this.#pattern ? text.matchAll(this.#pattern) : []) {
      const token = this.#tokens.get(match[0])!;
      let from = match.index, to = from + match[0].length;
      if (from < at) continue; // taken along by the token before
      if (token.lstrip) { while (from > at && this.splitter.isBlank(text, from - 1)) from--; }
      if (token.rstrip) { while (to < text.length && this.splitter.isBlank(text, to)) to++; }
      if (from > at) yield text.slice(at, from);
      yield token;
      at = to;
    }
    if (at < text.length) yield text.slice(at);
  }
}
