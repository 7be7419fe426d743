/** Texts on their way through one grammar, and the masks of tokens that may continue them. */
import { DataError } from "../base/errors.ts";
import { keepLast } from "../base/recent.ts";
import type { TokenMask } from "../generate/logit_rules.ts";
import { Automaton, DEAD } from "./automaton.ts";
import type { Network } from "./network.ts";
import { MASK_WORK, type TokenMasks } from "./token_masks.ts";

/** Texts and masks that are kept; others are read and made again when they are needed. */
const MAX_TEXTS = 256, MAX_MASKS = 256;

/** Bytes from which states are made anew. */
const MAX_STATES = 32 << 20;

/** A text: its tokens so far, and the state before each and after the last. */
interface Text {
  readonly tokens: number[];
  readonly states: number[];
}

export class Matcher {
  #automaton!: Automaton;
  #spent = 0;
  readonly #texts = new Map<number, Text>();
  readonly #known = new Map<number, TokenMask>();

  constructor(
    private readonly network: Network,
    private readonly vocabulary: readonly Uint8Array[],
    private readonly masks: TokenMasks,
  ) {
    this.#start();
  }

  /** Bytes that it takes, about. */
  get size(): number {
    return this.#automaton.size + this.#known.size * this.vocabulary.length / 8 +
      200 * this.network.nodes.length;
  }

  /** Configurations visited so far. */
  get work(): number {
    return this.#spent + this.#automaton.work;
  }

  /**
   * The mask of tokens that may come after these of a text.
   * @throws {DataError} where the grammar does not allow one of them, or takes too much work
   */
  mask(text: number, tokens: readonly number[]): Int32Array<ArrayBuffer> {
    if (this.#automaton.size > MAX_STATES) this.#start();
    const automaton = this.#automaton;
    automaton.limit = automaton.work + MASK_WORK;
    const state = this.#moveTo(text, tokens);
    const repetition = automaton.repetition(state);
    const runs = repetition && this.masks.runs(repetition.character);
    const alike = automaton.saturated(state, repetition, runs?.lookahead);
    const mask = this.#known.get(alike) ?? this.masks.mask(automaton, alike, repetition);
    keepLast(this.#known, alike, mask, MAX_MASKS);
    return runs ? runs.addTo(mask, repetition.remaining) : new Int32Array(mask);
  }

  #start(): void {
    this.#spent += this.#automaton?.work ?? 0;
    this.#automaton = new Automaton(this.network, this.masks.longest);
    this.#texts.clear();
    this.#known.clear();
  }

  /** The state after the tokens of a text, by what was read of it before. */
  #moveTo(number: number, tokens: readonly number[]): number {
    const text = this.#texts.get(number) ?? { tokens: [], states: [this.#automaton.start] };
    keepLast(this.#texts, number, text, MAX_TEXTS);
    let common = 0;
    while (common < text.tokens.length && text.tokens[common] === tokens[common]) common++;
    text.tokens.length = common;
    text.states.length = common + 1;
    for (const token of tokens.slice(common)) {
      let state = text.states.at(-1)!;
      const bytes = this.vocabulary[token] ?? [];
      for (const byte of bytes) state = this.#automaton.step(state, byte);
      if (state === DEAD || bytes.length === 0) {
        throw new DataError("the text does not match the grammar");
      }
      text.tokens.push(token);
      text.states.push(state);
    }
    return text.states.at(-1)!;
  }
}
