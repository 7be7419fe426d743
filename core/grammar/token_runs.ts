/** Tokens that are runs of one character of JSON strings, by how many of it they have. */
import { Automaton, DEAD } from "./automaton.ts";
import { type Character, repeat } from "./expression.ts";
import { networkOf } from "./network.ts";
import { allow, type TokenTrie } from "./token_trie.ts";

/** First byte that is not a control character, none of which a JSON string has. */
const FIRST_IN_STRINGS = 0x20;

export class TokenRuns {
  /** Nodes of the trie below which all tokens that a string may have are runs. */
  readonly isInside: Uint8Array;
  /** Most characters of a run that another token starts with. */
  lookahead = 0;
  /** Runs, shorter ones first. */
  readonly #ids: Int32Array;
  /** By number of characters: how many runs are at most that long. */
  readonly #counts: Int32Array;
  /** By number of characters: mask of the runs that are at most that long. The last one has all runs. */
  readonly #masks: Int32Array<ArrayBuffer>[] = [];

  /** `words`: length of masks. */
  constructor(private readonly trie: TokenTrie, character: Character, words: number) {
    this.isInside = new Uint8Array(trie.bytes.length);
    const automaton = new Automaton(networkOf({ rules: [repeat(character, 0)] }), Infinity);
    const lengths = this.#find(automaton);
    const longest = lengths.reduce((most, length) => Math.max(most, length), 0);
    this.#counts = new Int32Array(longest + 1);
    for (const length of lengths) if (length > 0) this.#counts[length]!++;
    for (let i = 1; i <= longest; i++) this.#counts[i]! += this.#counts[i - 1]!;
    this.#ids = new Int32Array(this.#counts[longest]!);
    const all = this.#masks[longest] = new Int32Array(words), next = [0, ...this.#counts];
    for (const [i, length] of lengths.entries()) {
      if (length === 0) continue;
      this.#ids[next[length]!++] = trie.ids[i]!;
      allow(all, trie.ids[i]!);
    }
  }

  /** A copy of a mask that also allows the runs of at most `length` characters. */
  addTo(mask: Int32Array, length: number): Int32Array<ArrayBuffer> {
    const runs = this.#upTo(Math.min(length, this.#masks.length - 1));
    const all = new Int32Array(mask);
    for (let i = 0; i < all.length; i++) all[i]! |= runs[i]!;
    return all;
  }

  #upTo(length: number): Int32Array<ArrayBuffer> {
    let known = length;
    while (!this.#masks[known]) known++;
    if (known === length) return this.#masks[length]!;
    const mask = new Int32Array(this.#masks[known]!);
    for (const id of this.#ids.subarray(this.#counts[length], this.#counts[known])) {
      mask[id >> 5]! &= ~(1 << (id & 31));
    }
    return this.#masks[length] = mask;
  }

  /** Characters that each token of the trie begins, zero for those that are not runs. */
  #find(automaton: Automaton): Uint16Array {
    const { bytes, depths, ends, firsts, ids } = this.trie;
    const lengths = new Uint16Array(ids.length);
    // Above the node: nodes, states after them, and characters that they begin.
    const path = [-1], states = [automaton.start], begun = [0];
    for (let node = 0; node < bytes.length;) {
      const depth = depths[node]!, before = states[depth - 1]!;
      const state = automaton.step(before, bytes[node]!);
      if (state === DEAD) {
        if (bytes[node]! >= FIRST_IN_STRINGS) this.#leave(path, depth - 1, begun[depth - 1]!);
        node = ends[node]!;
        continue;
      }
      path[depth] = node;
      states[depth] = state;
      const length = begun[depth] = begun[depth - 1]! + Number(automaton.isAccepting(before));
      this.isInside[node] = 1;
      lengths.fill(length, firsts[node], firsts[node + 1]);
      node++;
    }
    return lengths;
  }

  /** Notes that a token leaves the run below a node. */
  #leave(path: readonly number[], depth: number, begun: number): void {
    this.lookahead = Math.max(this.lookahead, begun);
    for (let at = depth; at > 0 && this.isInside[path[at]!]; at--) this.isInside[path[at]!] = 0;
  }
}
