/** The bytes that each token of a vocabulary stands for. */
import { BYTE_OF_CODE } from "../tokenizer/byte_alphabet.ts";
import type { Tokenizer } from "../tokenizer/types.ts";

/** Bytes by id; none for special tokens, which no grammar allows, and rows without a token. */
export function tokenBytes(tokenizer: Tokenizer, count: number): Uint8Array<ArrayBuffer>[] {
  const bytesOf = tokenizer.idOf("<0x0A>") === undefined ? byteLevel : byteFallback;
  return Array.from({ length: count }, (_, id) => {
    if (id >= tokenizer.vocabSize) return new Uint8Array();
    const isSpecial = tokenizer.decode([id], { skipSpecial: true }) === "";
    return isSpecial ? new Uint8Array() : bytesOf(tokenizer.tokenText(id));
  });
}

/** Bytes of a token whose letters stand for bytes; an added token is written as it is. */
function byteLevel(text: string): Uint8Array<ArrayBuffer> {
  const bytes = Array.from(text, (letter) => BYTE_OF_CODE[letter.codePointAt(0)!] ?? -1);
  return bytes.includes(-1) ? new TextEncoder().encode(text) : Uint8Array.from(bytes);
}

/** Bytes of a token of text, with a sign for blanks, or of one that stands for a byte. */
function byteFallback(text: string): Uint8Array<ArrayBuffer> {
  const [, byte] = /^<0x([0-9A-F]{2})>$/.exec(text) ?? [];
  if (byte !== undefined) return Uint8Array.of(parseInt(byte, 16));
  return new TextEncoder().encode(text.replaceAll("▁", " "));
}
