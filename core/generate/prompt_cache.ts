/** Prefills prompts one after another, and computes what a prompt shares with the one before only once. */
import type { HostArray } from "../runtime/device.ts";
import type { Engine } from "./engine.ts";
import type { KvCache } from "./kv_cache.ts";
import { prefill } from "./prefill.ts";
import { PrefixCache } from "./prefix_cache.ts";

/** The last prompt with its keys and values; for beam search. */
export class PromptCache implements Disposable {
  readonly #engine: Engine;
  readonly #prefixes = new PrefixCache();

  constructor(engine: Engine) {
    this.#engine = engine;
  }

  /**
   * A cache of one sequence that holds the prompt, with room for one token more, and the logits of its
   * last token, which the next step overwrites. The cache may be read, not written, until the next
   * prompt.
   */
  async prefill(
    tokens: readonly number[],
  ): Promise<{ cache: KvCache; outputs: ReadonlyMap<string, HostArray> }> {
    const cache = this.#engine.createCache(1, tokens.length + 1);
    const start = this.#prefixes.copyInto(cache, 0, tokens);
    const outputs = await prefill(this.#engine, cache, tokens, { start });
    this.#prefixes.add(cache, [tokens]);
    return { cache, outputs };
  }

  /** Forgets the last prompt. */
  [Symbol.dispose](): void {
    this.#prefixes[Symbol.dispose]();
  }
}
