/**
 * Continues many prompts at once: continuous batching over a fixed number of slots.
 *
 * Requests are prefilled one by one (what a prompt shares with the one before is computed once) into
 * free slots and then decoded together, one token per step for
 * every occupied slot; a slot that finishes takes the next request at once. Events come out as they
 * happen: a token, or the end of a request. Requests may come slowly: those under way go on meanwhile.
 * Every request draws from its own random stream, so its result does not depend on what it shares the
 * batch with.
 */
import { notFinite } from "../errors.ts";
import type { ForwardOptions } from "../model/forward.ts";
import type { RandomStream } from "../random.ts";
import type { HostArray } from "../runtime/device.ts";
import type { Engine } from "./engine.ts";
import type { KvCache } from "./kv_cache.ts";
import { checkTokens } from "./prefill.ts";
import { PromptCache } from "./prompt_cache.ts";
import { sample, type SamplingOptions } from "./sampling.ts";

/** Why a text ended: an end token, a stop string, or the token limit. */
export type FinishReason = "eos" | "stop" | "length";

/** A prompt and how to continue it. */
export interface GenerationRequest {
  readonly tokens: readonly number[];
  /** At most this many new tokens; the model's context limits it further. */
  readonly maxTokens: number;
  readonly sampling: SamplingOptions;
  readonly random: RandomStream;
  /** Tokens that end the text; part of the result. */
  readonly eosTokenIds: readonly number[];
  /** Asked after every token (not after an end token); true ends the text there. */
  readonly shouldStop?: (token: number) => boolean;
}

/** What happened to one request, by its position in the input. */
export type GenerationEvent =
  | { readonly kind: "token"; readonly index: number; readonly token: number }
  | { readonly kind: "done"; readonly index: number; readonly reason: FinishReason }
  | { readonly kind: "failed"; readonly index: number; readonly error: unknown };

interface Slot {
  readonly index: number;
  readonly request: GenerationRequest;
  readonly limit: number;
  /** Tokens in the cache. */
  used: number;
  /** Sampled, not yet in the cache. */
  next: number;
  produced: number;
}

/**
 * Runs requests with at most `batch` at a time. A request that cannot be run gives a `failed` event;
 * errors of the engine are thrown.
 */
export async function* generate(
  engine: Engine,
  requests: Iterable<GenerationRequest> | AsyncIterable<GenerationRequest>,
  { batch }: { batch: number },
): AsyncGenerator<GenerationEvent> {
  const queue = new Queue(requests);
  using run = new Batch(engine, batch);
  try {
    for (let index = 0;;) {
      while (!queue.exhausted && run.hasFreeSlot) {
        const request = await queue.next(run.isEmpty);
        if (!request) break;
        yield* run.admit(index++, request);
      }
      if (!run.isEmpty) yield* run.step();
      else if (queue.exhausted) return;
    }
  } finally {
    await queue.close();
  }
}

/** How long decoding waits for a request that a slow source has not made yet. */
const PATIENCE_MS = 5;

/** Requests in order. A slow source does not keep those under way from going on. */
class Queue {
  exhausted = false;
  readonly #source: Iterator<GenerationRequest> | AsyncIterator<GenerationRequest>;
  #pending: Promise<void> | undefined;
  #arrived: (() => IteratorResult<GenerationRequest>) | undefined;

  constructor(requests: Iterable<GenerationRequest> | AsyncIterable<GenerationRequest>) {
    this.#source = Symbol.asyncIterator in requests
      ? requests[Symbol.asyncIterator]()
      : requests[Symbol.iterator]();
  }

  /** The next request; undefined at the end, and while there is none unless told to wait for it. */
  async next(wait: boolean): Promise<GenerationRequest | undefined> {
    if (!this.#pending) {
      this.#pending = this.#ask();
      if (!wait) await Promise.race([this.#pending, delay(PATIENCE_MS, this.#pending)]);
    }
    if (wait) await this.#pending;
    if (!this.#arrived) return undefined;
    const { done, value } = this.#arrived();
    this.#pending = this.#arrived = undefined;
    if (!done) return value;
    this.exhausted = true;
  }

  /** Tells the source that nobody asks any more. */
  async close(): Promise<void> {
    if (!this.exhausted && !this.#pending) await this.#source.return?.();
  }

  /** Never rejects, since nobody may be waiting; the error is thrown to who takes the result. */
  async #ask(): Promise<void> {
    try {
      const result = await this.#source.next();
      this.#arrived = () => result;
    } catch (error) {
      this.#arrived = () => {
        throw error;
      };
    }
  }
}

/** Resolves after some time, or never once `unless` has settled. */
function delay(ms: number, unless: Promise<void>): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    unless.then(() => clearTimeout(timer));
  });
}

class Batch implements Disposable {
  readonly #engine: Engine;
  readonly #size: number;
  /** At most `size`; fewer while there is less to do, since every slot costs time, used or not. */
  #slots: (Slot | undefined)[];
  #cache: KvCache | undefined;
  readonly #prompts: PromptCache;

  constructor(engine: Engine, size: number) {
    this.#engine = engine;
    this.#size = size;
    this.#prompts = new PromptCache(engine);
    this.#slots = new Array(size).fill(undefined);
  }

  [Symbol.dispose](): void {
    this.#cache?.[Symbol.dispose]();
    this.#prompts[Symbol.dispose]();
  }

  get hasFreeSlot(): boolean {
    return this.#slots.length < this.#size || this.#slots.includes(undefined);
  }

  get isEmpty(): boolean {
    return this.#slots.every((slot) => slot === undefined);
  }

  /** Prefills a request and gives it a slot, unless its first token is already its last. */
  async *admit(index: number, request: GenerationRequest): AsyncGenerator<GenerationEvent> {
    const { config } = this.#engine;
    try {
      checkTokens(config, request.tokens, "continue a prompt");
    } catch (error) {
      yield { kind: "failed", index, error };
      return;
    }
    const room = config.maxPositionEmbeddings - request.tokens.length;
    const limit = Math.min(request.maxTokens, room);
    if (limit < 1) {
      yield { kind: "done", index, reason: "length" };
      return;
    }
    const used = request.tokens.length;
    const head = this.#headFor([request]);
    const { cache: prompt, outputs } = await this.#prompts.prefill(request.tokens, head);
    const next = this.#pick(outputs, 0, request);
    const slot: Slot = { index, request, limit, used, next, produced: 1 };
    const reason = finishReason(slot);
    yield { kind: "token", index, token: next };
    if (reason) yield { kind: "done", index, reason };
    else this.#place(slot, prompt);
  }

  /** Decodes one token for every occupied slot. */
  async *step(): AsyncGenerator<GenerationEvent> {
    this.#shrink();
    const slots = this.#slots;
    const cache = this.#reserve(Math.max(...slots.map((slot) => (slot?.used ?? 0) + 1)));
    const occupied = slots.flatMap((slot, b) => slot ? [b] : []);
    const outputs = await this.#engine.forward(cache, {
      // A free slot computes token 0 at position 0: nobody reads it.
      ids: slots.map((slot) => [slot?.next ?? 0]),
      start: slots.map((slot) => slot?.used ?? 0),
      select: slots.map((_, b) => b),
    }, this.#headFor(occupied.map((b) => slots[b]!.request)));
    for (const b of occupied) {
      const slot = slots[b]!;
      slot.used++;
      slot.next = this.#pick(outputs, b, slot.request);
      slot.produced++;
      const reason = finishReason(slot);
      yield { kind: "token", index: slot.index, token: slot.next };
      if (!reason) continue;
      slots[b] = undefined;
      yield { kind: "done", index: slot.index, reason };
    }
  }

  /** Where reading logits is a copy and all are greedy, the device picks the tokens. */
  #headFor(requests: readonly GenerationRequest[]): ForwardOptions {
    const greedy = requests.every(({ sampling }) => sampling.temperature === 0);
    return { head: greedy && this.#engine.device.isDistant ? "greedy" : "logits" };
  }

  /** The next token of row b. */
  #pick(
    outputs: ReadonlyMap<string, HostArray>,
    b: number,
    { sampling, random }: GenerationRequest,
  ): number {
    const logits = outputs.get("logits");
    if (!logits) {
      if (Number.isNaN(outputs.get("logprobs")![b])) {
        throw notFinite("choose a token", "NaN as a logit");
      }
      return outputs.get("argmax")![b]!;
    }
    const V = this.#engine.config.vocabSize;
    return sample(logits.subarray(b * V, (b + 1) * V), sampling, random);
  }

  #place(slot: Slot, prompt: KvCache): void {
    const free = this.#slots.indexOf(undefined);
    const b = free < 0 ? this.#slots.length : free;
    if (free < 0) this.#slots.push(...new Array(Math.min(b, this.#size - b)).fill(undefined));
    this.#reserve(slot.used + 1).copyFrom(prompt, [[0, b]], slot.used);
    this.#slots[b] = slot;
  }

  /** The cache, grown to hold this many slots per sequence. */
  #reserve(slots: number): KvCache {
    const old = this.#cache;
    const size = this.#slots.length;
    if (old && old.batch === size && old.capacity >= slots) return old;
    if (!old) return this.#cache = this.#engine.createCache(size, slots);
    const used = Math.max(0, ...this.#slots.map((slot) => slot?.used ?? 0));
    // What a new slot starts with is never looked at.
    const from = Array.from({ length: size }, (_, b) => b < old.batch ? b : 0);
    return this.#replace(old, old.rearranged(from, Math.max(slots, used), used));
  }

  /** Drops free slots once they are half of all. */
  #shrink(): void {
    const occupied = this.#slots.flatMap((slot, b) => slot ? [b] : []);
    if (!this.#cache || occupied.length * 2 > this.#slots.length) return;
    const used = Math.max(...occupied.map((b) => this.#slots[b]!.used));
    const old = this.#cache;
    this.#replace(old, old.rearranged(occupied, old.capacity, used));
    this.#slots = occupied.map((b) => this.#slots[b]);
  }

  #replace(old: KvCache, by: KvCache): KvCache {
    old[Symbol.dispose]();
    return this.#cache = by;
  }
}

function finishReason({ request, next, produced, limit }: Slot): FinishReason | undefined {
  if (request.eosTokenIds.includes(next)) return "eos";
  if (request.shouldStop?.(next)) return "stop";
  return produced >= limit ? "length" : undefined;
}
