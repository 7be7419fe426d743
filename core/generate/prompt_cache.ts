/**
 * Prefills prompts one after another, and computes what a prompt shares with the one before only once.
 *
 * Prompts of a benchmark often begin with the same solved examples, and several samples of one prompt
 * are the same throughout. Keys and values of a token depend on nothing behind it, so those of the
 * shared beginning are copied, for every stream.
 */
import type { HostArray } from "../runtime/device.ts";
import type { Engine } from "./engine.ts";
import type { KvCache } from "./kv_cache.ts";
import { prefill, type PromptHead } from "./prefill.ts";

/** Fewer shared tokens than this are not worth a copy. */
const LEAST_SHARED = 16;

/** The last prompt with its keys and values. */
export class PromptCache implements Disposable {
  readonly #engine: Engine;
  #last: { readonly tokens: readonly number[]; readonly cache: KvCache } | undefined;

  constructor(engine: Engine) {
    this.#engine = engine;
  }

  /**
   * A cache of one sequence that holds the prompt, with room for one token more, and the outputs for
   * its last token, which the next step overwrites. The cache may be read, not written, until the
   * next prompt.
   */
  async prefill(
    tokens: readonly number[],
    head?: PromptHead,
  ): Promise<{ cache: KvCache; outputs: ReadonlyMap<string, HostArray> }> {
    const cache = this.#engine.createCache(1, tokens.length + 1);
    // The last token is always computed, since its outputs are wanted.
    const shared = Math.min(commonLength(this.#last?.tokens ?? [], tokens), tokens.length - 1);
    const start = shared < LEAST_SHARED ? 0 : shared;
    if (start > 0) cache.copyFrom(this.#last!.cache, [[0, 0]], start);
    const outputs = await prefill(this.#engine, cache, tokens, { start, ...head });
    this[Symbol.dispose]();
    this.#last = { tokens, cache };
    return { cache, outputs };
  }

  /** Forgets the last prompt. */
  [Symbol.dispose](): void {
    this.#last?.cache[Symbol.dispose]();
    this.#last = undefined;
  }
}

/** Number of tokens with which both begin. */
export function commonLength(a: ArrayLike<number>, b: ArrayLike<number>): number {
  const length = Math.min(a.length, b.length);
  let shared = 0;
  while (shared < length && a[shared] === b[shared]) shared++;
  return shared;
}
