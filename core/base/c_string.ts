/** Texts for native libraries. */
const encoder = new TextEncoder();

/** A text as the zero-terminated bytes C expects. */
export function cString(text: string): Uint8Array<ArrayBuffer> {
  return encoder.encode(`${text}\0`);
}
