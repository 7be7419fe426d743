/**
 * The tokens of short words met before, by their characters.
 *
 * A table of fixed size without strings: of two words with one slot the later stays. Random text, whose
 * words never come again, costs one comparison and no garbage.
 */

/** Slots, characters of a word, tokens of a word: 4.5 MiB. Longer words are rare. */
const SLOTS = 1 << 16, MAX_UNITS = 16, MAX_IDS = 8;

export class WordCache {
  readonly #units = new Uint16Array(SLOTS * MAX_UNITS);
  readonly #ids = new Int32Array(SLOTS * MAX_IDS);
  /** Characters in a slot; 0 in a free one. */
  readonly #lengths = new Uint8Array(SLOTS);
  readonly #counts = new Uint8Array(SLOTS);

  /** Appends the tokens of the word `text[from..to)` to `ids` if they are known. */
  append(text: string, from: number, to: number, ids: number[]): boolean {
    const length = to - from;
    if (length > MAX_UNITS) return false;
    const slot = slotOf(text, from, to);
    if (this.#lengths[slot] !== length) return false;
    const units = slot * MAX_UNITS - from;
    for (let i = from; i < to; i++) {
      if (this.#units[units + i] !== text.charCodeAt(i)) return false;
    }
    const first = slot * MAX_IDS, end = first + this.#counts[slot]!;
    for (let i = first; i < end; i++) ids.push(this.#ids[i]!);
    return true;
  }

  /** Remembers the first `count` of `ids` as the tokens of the word `text[from..to)`. */
  set(text: string, from: number, to: number, ids: Int32Array, count: number): void {
    if (to - from > MAX_UNITS || count > MAX_IDS) return;
    const slot = slotOf(text, from, to);
    this.#lengths[slot] = to - from;
    this.#counts[slot] = count;
    for (let i = from; i < to; i++) this.#units[slot * MAX_UNITS + i - from] = text.charCodeAt(i);
    for (let i = 0; i < count; i++) this.#ids[slot * MAX_IDS + i] = ids[i]!;
  }
}

function slotOf(text: string, from: number, to: number): number {
  let hash = 0x811c9dc5;
  for (let i = from; i < to; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
  hash ^= hash >>> 15;
  return Math.imul(hash, 0x85ebca6b) >>> 16;
}
