/**
 * The printable stand-ins that byte-level vocabularies use for bytes.
 *
 * Bytes that print in Latin-1 stand for themselves; the other 68 (blanks, controls, 0xAD) take the
 * characters from U+0100 on, in order. So a space is `Ġ` (U+0120) and a line feed `Ċ` (U+010A).
 */

/** Character code that stands for each byte. */
export const CODE_OF_BYTE: Uint16Array = new Uint16Array(256);

/** Byte of each character code; -1 for a character that stands for none. */
export const BYTE_OF_CODE: Int16Array = new Int16Array(0x144).fill(-1);

for (let byte = 0, next = 0x100; byte < 256; byte++) {
  const prints = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte !== 0xad);
  const code = prints ? byte : next++;
  CODE_OF_BYTE[byte] = code;
  BYTE_OF_CODE[code] = byte;
}

/** Bytes as a vocabulary spells them. */
export function spellBytes(bytes: Uint8Array): string {
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(CODE_OF_BYTE[byte]!);
  return text;
}

/** Bytes of a spelling; undefined when a character stands for no byte. */
export function unspell(text: string): Uint8Array | undefined {
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) {
    const byte = BYTE_OF_CODE[text.charCodeAt(i)] ?? -1;
    if (byte < 0) return undefined;
    bytes[i] = byte;
  }
  return bytes;
}
