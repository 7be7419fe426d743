/**
 * The tokens of a byte-level vocabulary, as bytes.
 *
 * No token ever becomes a string here: making 150,000 strings and a Map of them is most of what opening
 * a tokenizer would cost otherwise.
 */
import { DataError } from "../base/errors.ts";
import { spellBytes, unspell } from "./byte_alphabet.ts";

/** Ids from here on are refused: no vocabulary is near, and tables are as long as the highest id. */
export const MAX_TOKEN_ID = 2 ** 21;

/** Tokens as they lie in a file. */
export interface TokenList {
  readonly count: number;
  readonly ids: Int32Array;
  /** `count + 1` positions in `bytes`: the tokens lie one after another. */
  readonly starts: Uint32Array;
  readonly bytes: Uint8Array;
}

/** Looks tokens up by id and by content. */
export class Vocabulary {
  /** Highest id + 1. */
  readonly size: number;
  /** Bytes of the longest token. */
  readonly longestToken: number;
  /** Id of the token that is this single byte, or -1. */
  readonly byteIds: Int32Array = new Int32Array(256).fill(-1);
  /** Place in the list + 1 by id; 0 for an id that no token has. */
  readonly #placeOfId: Int32Array;
  /** Open addressing by content: place in the list + 1, 0 in a free slot. */
  readonly #slots: Int32Array;

  /** Indexes a list; `path` names its file in messages. */
  constructor(private readonly list: TokenList, path: string) {
    let size = 0, longest = 0;
    for (let i = 0; i < list.count; i++) {
      size = Math.max(size, list.ids[i]! + 1);
      longest = Math.max(longest, list.starts[i + 1]! - list.starts[i]!);
    }
    this.size = size;
    this.longestToken = longest;
    this.#placeOfId = new Int32Array(size);
    let slots = 16;
    while (slots * 0.7 < list.count) slots *= 2;
    this.#slots = new Int32Array(slots);
    for (let i = 0; i < list.count; i++) this.#enter(i, path);
  }

  /** Bytes of a token; undefined for an id that no token has. */
  bytesOf(id: number): Uint8Array | undefined {
    const place = this.#placeOfId[id] ?? 0;
    return place === 0 ? undefined : this.#contentAt(place - 1);
  }

  /** Id of the token whose bytes are `source[from..to)`, or -1. */
  find(source: Uint8Array, from: number, to: number): number {
    const place = this.#slots[this.#slotOf(source, from, to)]!;
    return place === 0 ? -1 : this.list.ids[place - 1]!;
  }

  /** Id of a token in the file's spelling. */
  idOf(token: string): number | undefined {
    const bytes = unspell(token);
    const id = bytes ? this.find(bytes, 0, bytes.length) : -1;
    return id < 0 ? undefined : id;
  }

  /** A token as the file spells it; undefined for an id that no token has. */
  tokenText(id: number): string | undefined {
    const bytes = this.bytesOf(id);
    return bytes && spellBytes(bytes);
  }

  /** Returns whether token `id` exists and its bytes are `source[from..to)`. */
  equals(id: number, source: Uint8Array, from: number, to: number): boolean {
    const place = this.#placeOfId[id] ?? 0;
    return place !== 0 && this.#equalsAt(place - 1, source, from, to);
  }

  #enter(index: number, path: string): void {
    const { ids, starts, bytes } = this.list;
    const id = ids[index]!, from = starts[index]!, to = starts[index + 1]!;
    const other = this.#placeOfId[id]!;
    const slot = this.#slotOf(bytes, from, to);
    if (other !== 0 || this.#slots[slot] !== 0) {
      const spell = (index: number) => JSON.stringify(spellBytes(this.#contentAt(index)));
      const problem = other === 0
        ? `token ${spell(index)} twice`
        : `id ${id} for both ${spell(index)} and ${spell(other - 1)}`;
      throw new DataError(`the vocabulary in "${path}" has ${problem}`);
    }
    this.#placeOfId[id] = index + 1;
    this.#slots[slot] = index + 1;
    if (to - from === 1) this.byteIds[bytes[from]!] = id;
  }

  #contentAt(index: number): Uint8Array {
    const { starts, bytes } = this.list;
    return bytes.subarray(starts[index]!, starts[index + 1]!);
  }

  /** The slot of this content, or the free slot where it belongs. */
  #slotOf(source: Uint8Array, from: number, to: number): number {
    const mask = this.#slots.length - 1;
    let hash = 0x811c9dc5;
    for (let i = from; i < to; i++) hash = Math.imul(hash ^ source[i]!, 0x01000193);
    hash ^= hash >>> 15;
    for (let slot = hash & mask;; slot = (slot + 1) & mask) {
      const place = this.#slots[slot]!;
      if (place === 0 || this.#equalsAt(place - 1, source, from, to)) return slot;
    }
  }

  #equalsAt(index: number, source: Uint8Array, from: number, to: number): boolean {
    const { starts, bytes } = this.list;
    let at = starts[index]!;
    if (starts[index + 1]! - at !== to - from) return false;
    for (let i = from; i < to; i++) if (source[i] !== bytes[at++]) return false;
    return true;
  }
}
