/**
 * Masks of the tokens that may continue a text.
 *
 * Within a repeated character of JSON strings, such as those of any string or of `[a-z]{1,200}`, most tokens
 * that are allowed are a run of it. These are found once for each character; the walk passes over them.
 */
import { keepLast } from "../base/recent.ts";
import type { TokenMask } from "../generate/logit_rules.ts";
import { type Automaton, type Repetition, TooMuchWork } from "./automaton.ts";
import type { Character } from "./expression.ts";
import { TokenRuns } from "./token_runs.ts";
import { allow, type TokenTrie, trieOf, walk } from "./token_trie.ts";

/** Most configurations that are visited for one mask; for tokens of one byte once more. */
export const MASK_WORK = 200_000;

/** Characters whose runs are kept. */
const MAX_RUNS = 16;

export class TokenMasks {
  /** Bytes of the longest token. */
  readonly longest: number;
  readonly #trie: TokenTrie;
  readonly #words: number;
  readonly #runs = new Map<string, TokenRuns>();

  /** `tokens`: bytes by id, empty for those that no grammar allows. */
  constructor(tokens: readonly Uint8Array[], private readonly stopTokenIds: readonly number[]) {
    this.#trie = trieOf(tokens);
    this.#words = Math.ceil(tokens.length / 32);
    this.longest = tokens.reduce((most, { length }) => Math.max(most, length), 1);
  }

  /** Tokens that are runs of a character. */
  runs(character: Character): TokenRuns {
    const key = String(character.ranges);
    const runs = this.#runs.get(key) ?? new TokenRuns(this.#trie, character, this.#words);
    keepLast(this.#runs, key, runs, MAX_RUNS);
    return runs;
  }

  /**
   * Tokens allowed in a state, but for runs of a character that is repeated there. Where there are too many
   * paths to walk, only tokens of one byte are allowed.
   */
  mask(automaton: Automaton, state: number, repetition?: Repetition): TokenMask {
    const mask = new Int32Array(this.#words);
    const isSkipped = repetition && this.runs(repetition.character).isInside;
    automaton.limit = automaton.work + MASK_WORK;
    try {
      walk(this.#trie, automaton, state, mask, { isSkipped });
      const others = repetition && automaton.withoutRepetition(state, repetition.node);
      if (others !== undefined) walk(this.#trie, automaton, others, mask);
    } catch (error) {
      if (!(error instanceof TooMuchWork)) throw error;
      automaton.limit = automaton.work + MASK_WORK;
      walk(this.#trie, automaton, state, mask, { maxDepth: 1 });
    }
    if (automaton.isAccepting(state)) { for (const id of this.stopTokenIds) allow(mask, id); }
    return mask;
  }
}
