/**
 * Requests that are decoded together, one token per step for every occupied slot.
 *
 * Takes requests one by one, as long as there is a free slot; returns events, as they happen. On a
 * device that samples tokens the next step is issued before the tokens of this one are
 * known, so that it never waits for the host. Such a step may turn out to be in vain for a request
 * that ended with the token before; its result is ignored.
 */
import { notFinite } from "../base/errors.ts";
import type { HostArray } from "../runtime/device.ts";
import { GREEDY, sample, samplingNumbers } from "../base/sampling.ts";
import type { Engine } from "./engine.ts";
import type { KvCache } from "./kv_cache.ts";
import { checkTokens, type PromptHead } from "./prefill.ts";
import { PromptCache } from "./prompt_cache.ts";
import { penalizeRepetition } from "./repetition.ts";
import type { FinishReason, GenerationEvent, GenerationRequest } from "./request.ts";

interface Slot {
  readonly index: number;
  readonly request: GenerationRequest;
  readonly limit: number;
  /** Tokens in the cache, or on their way there. */
  used: number;
  /** The last token that is known. */
  next: number;
  produced: number;
  /** Tokens of prompt and answer, where repetition is penalized. */
  readonly seen: Set<number> | undefined;
}

/** A step that is under way. */
interface Flight {
  readonly cache: KvCache;
  /** Whose tokens it computes, by row. */
  readonly slots: readonly (Slot | undefined)[];
  /** Waits for the token of every row. */
  readonly tokens: () => ArrayLike<number>;
}

export class Batch implements Disposable {
  readonly #engine: Engine;
  readonly #size: number;
  /** At most `size`; fewer while there is less to do, since every slot costs time, used or not. */
  #slots: (Slot | undefined)[];
  #cache: KvCache | undefined;
  #ahead: Flight | undefined;
  readonly #prompts: PromptCache;

  /** Takes up to `size` requests at a time. */
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
    const seen = penalizes(request) ? new Set(request.tokens) : undefined;
    const next = this.#pick(outputs, 0, { request, seen });
    const slot: Slot = { index, request, limit, used, next, produced: 1, seen };
    const reason = finishReason(slot);
    yield { kind: "token", index, token: next };
    if (reason) yield { kind: "done", index, reason };
    else this.#place(slot, prompt);
  }

  /** Decodes one token for every occupied slot. */
  async *step(): AsyncGenerator<GenerationEvent> {
    const isOccupied = (slot: Slot | undefined) => slot && this.#slots.includes(slot);
    const ahead = this.#ahead?.slots.some(isOccupied) ? this.#ahead : undefined;
    const flight = ahead ?? await this.#issue();
    this.#ahead = this.#goesOnAfter(flight) ? await this.#issue(flight) : undefined;
    const tokens = flight.tokens();
    for (const [b, slot] of flight.slots.entries()) {
      if (!slot || !isOccupied(slot)) continue;
      slot.next = checked(tokens[b]!);
      slot.produced++;
      const reason = finishReason(slot);
      yield { kind: "token", index: slot.index, token: slot.next };
      if (!reason) continue;
      this.#slots[this.#slots.indexOf(slot)] = undefined;
      yield { kind: "done", index: slot.index, reason };
    }
  }

  /** Whether the next step can be issued now: for the same rows, with tokens that only the device knows. */
  #goesOnAfter({ cache, slots }: Flight): boolean {
    const { device } = this.#engine;
    return this.#isSampledOnDevice(slots) && !!device.readLater && cache === this.#cache &&
      !this.#isSparse &&
      slots.every((slot, b) => slot === this.#slots[b]) &&
      slots.some((slot) => slot && hasMore(slot)) &&
      slots.every((slot) => !slot || slot.used < cache.capacity);
  }

  /** Issues a step for all slots, or for those of another step that is still under way. */
  async #issue(after?: Flight): Promise<Flight> {
    if (!after) this.#shrink();
    // The token under way may be the last that is allowed.
    const slots = this.#slots.map((slot) => !after || (slot && hasMore(slot)) ? slot : undefined);
    const cache = this.#reserve(Math.max(...slots.map((slot) => (slot?.used ?? 0) + 1)));
    // A free slot computes token 0 at position 0: it is not read.
    const start = slots.map((slot) => slot?.used ?? 0);
    const ids = slots.map((slot) => slot?.next ?? 0);
    for (const slot of slots) if (slot) slot.used++;
    if (this.#isSampledOnDevice(slots)) {
      const sampling = slots.flatMap((slot) => numbersOf(slot?.request));
      const given = after ? {} : { ids };
      const tokens = await this.#engine.sample(cache, { ...given, start, sampling });
      return { cache, slots, tokens };
    }
    const outputs = await this.#engine.forward(cache, {
      ids: ids.map((id) => [id]),
      start,
      select: slots.map((_, b) => b),
    }, this.#headFor(slots.flatMap((slot) => slot ? [slot.request] : [])));
    const pick = (slot: Slot | undefined, b: number) => slot ? this.#pick(outputs, b, slot) : 0;
    return { cache, slots, tokens: () => slots.map(pick) };
  }

  /** Whether the device chooses the tokens of all these; it knows nothing of earlier ones. */
  #isSampledOnDevice(slots: readonly (Slot | undefined)[]): boolean {
    return this.#engine.device.traits.samplesTokens && !slots.some((slot) => slot?.seen);
  }

  /** Where reading logits is a copy, the device picks the tokens if it can. */
  #headFor(requests: readonly GenerationRequest[]): PromptHead {
    if (requests.some(penalizes)) return { head: "logits" };
    const { samplesTokens, readbackIsCopy } = this.#engine.device.traits;
    if (samplesTokens) return { head: "sample", sampling: requests.flatMap(numbersOf) };
    const greedy = requests.every(({ sampling }) => sampling.temperature === 0);
    return { head: greedy && readbackIsCopy ? "greedy" : "logits" };
  }

  /** The next token of row b. */
  #pick(
    outputs: ReadonlyMap<string, HostArray>,
    b: number,
    { request: { sampling, random }, seen }: Pick<Slot, "request" | "seen">,
  ): number {
    const logits = outputs.get("logits");
    if (logits) {
      const V = this.#engine.config.vocabSize;
      const row = logits.subarray(b * V, (b + 1) * V);
      if (!seen) return sample(row, sampling, random);
      const penalized = penalizeRepetition(row, seen, sampling.repetitionPenalty!);
      const token = sample(penalized, sampling, random);
      seen.add(token);
      return token;
    }
    const sampled = outputs.get("tokens");
    if (sampled) return checked(sampled[b]!);
    return checked(Number.isNaN(outputs.get("logprobs")![b]) ? -1 : outputs.get("argmax")![b]!);
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

  /** Whether free slots are half of all. */
  get #isSparse(): boolean {
    return this.#slots.filter((slot) => slot).length * 2 <= this.#slots.length;
  }

  /** Drops free slots once they are half of all. */
  #shrink(): void {
    if (!this.#cache || !this.#isSparse) return;
    const occupied = this.#slots.flatMap((slot, b) => slot ? [b] : []);
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

function penalizes({ sampling: { repetitionPenalty = 1 } }: GenerationRequest): boolean {
  return repetitionPenalty !== 1;
}

/** What tells a device how to choose the next token of a request; of a free slot, anything. */
function numbersOf(request: GenerationRequest | undefined): number[] {
  const { sampling, random } = request ?? { sampling: GREEDY, random: { uniform: () => 0 } };
  return samplingNumbers(sampling, random);
}

/** A token; devices say by −1 that there was a NaN. */
function checked(token: number): number {
  if (token < 0) throw notFinite("choose a token", "a NaN logit");
  return token;
}

/** Whether a request may have another token behind the one that is under way. */
function hasMore({ produced, limit }: Slot): boolean {
  return produced + 1 < limit;
}

function finishReason({ request, next, produced, limit }: Slot): FinishReason | undefined {
  if (request.eosTokenIds.includes(next)) return "eos";
  if (request.shouldStop?.(next)) return "stop";
  return produced >= limit ? "length" : undefined;
}
