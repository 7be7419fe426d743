/** A worker that follows texts through grammars, for one vocabulary. See `engine.ts`. */
/// <reference no-default-lib="true" />
/// <reference lib="deno.worker" />
import { BYTE_OF_CODE } from "../tokenizer/byte_alphabet.ts";
import { openTokenizer, type Tokenizer } from "../tokenizer/tokenizer.ts";
import type { GrammarAnswer, GrammarQuestion, Vocabulary } from "./engine.ts";
import { keepLast, Matcher } from "./matcher.ts";
import { TokenTrie } from "./token_trie.ts";

/** Grammars that are kept, and bytes of all together; others are sent again when they are needed. */
const MAX_GRAMMARS = 32, MAX_BYTES = 128 << 20;

interface Opened {
  readonly tokens: readonly Uint8Array[];
  readonly trie: TokenTrie;
}

let opened: Promise<Opened> | undefined;
const matchers = new Map<string, Matcher>();

async function open({ directory, vocabSize, stopTokenIds }: Vocabulary): Promise<Opened> {
  const tokenizer = await openTokenizer(directory);
  const bytesOf = tokenizer.idOf("<0x0A>") === undefined ? byteLevel : byteFallback;
  const tokens = Array.from({ length: vocabSize }, (_, id) => {
    const text = spelled(tokenizer, id);
    return text === "" ? new Uint8Array() : bytesOf(text);
  });
  return { tokens, trie: new TokenTrie(tokens, stopTokenIds) };
}

/** A token as the vocabulary spells it; as nothing where it is special, which no grammar allows. */
function spelled(tokenizer: Tokenizer, id: number): string {
  if (id >= tokenizer.vocabSize) return "";
  return tokenizer.decode([id], { skipSpecial: true }) === "" ? "" : tokenizer.tokenText(id);
}

/** Bytes of a token whose letters stand for bytes; an added token is written as it is. */
function byteLevel(text: string): Uint8Array {
  const bytes = Array.from(text, (letter) => BYTE_OF_CODE[letter.codePointAt(0)!] ?? -1);
  return bytes.includes(-1) ? new TextEncoder().encode(text) : Uint8Array.from(bytes);
}

/** Bytes of a token of text, with a sign for blanks, or of one that stands for a byte. */
function byteFallback(text: string): Uint8Array {
  const [, byte] = /^<0x([0-9A-F]{2})>$/.exec(text) ?? [];
  if (byte !== undefined) return Uint8Array.of(parseInt(byte, 16));
  return new TextEncoder().encode(text.replaceAll("▁", " "));
}

/** The mask behind these tokens, by what the matcher has seen of the text already. */
async function maskOf({ key, network, text, tokens }: GrammarQuestion): Promise<GrammarAnswer> {
  const { tokens: vocabulary, trie } = await opened!;
  const matcher = matchers.get(key) ?? (network && new Matcher(network, vocabulary, trie));
  if (!matcher) return { isUnknown: true };
  keepLast(matchers, key, matcher, MAX_GRAMMARS);
  const mask = matcher.mask(text, tokens);
  dropLarge();
  return { mask };
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

self.onmessage = async ({ data }: MessageEvent<Vocabulary | GrammarQuestion>) => {
  if ("directory" in data) {
    opened = open(data);
    return;
  }
  const answer = await maskOf(data).catch((error): GrammarAnswer => ({ error: error.message }));
  self.postMessage(answer, "mask" in answer ? [answer.mask.buffer] : []);
};
