/**
 * Continuous batching with chunked prefill, the one scheduler of `generate`, `eval` and `serve`.
 *
 * A round is one decode step for all sequences under way, then at most one prefill chunk, so that a long
 * prompt delays a token by one chunk at most. Prompts that wait together are prefilled together; two
 * groups prefill in alternation, so that a short prompt passes a long one. Owners of many requests take
 * turns. Every request draws from its own random stream, so its result does not depend on what it shares
 * the batch with.
 */
import { NumericalError } from "../base/errors.ts";
import { Batch } from "./batch.ts";
import { largestBatch } from "./batch_size.ts";
import type { Engine } from "./engine.ts";
import type { KvCache } from "./kv_cache.ts";
import { checkTokens } from "./prefill.ts";
import { type Prefilled, PrefillGroup, takeGroup } from "./prefill_group.ts";
import { PrefixCache } from "./prefix_cache.ts";
import type { GenerationRequest, SchedulerEvent } from "./request.ts";
import { append, finishReason, openSequence, type Sequence } from "./sequence.ts";
import { freeFor, Turns } from "./turns.ts";

/** Groups of prompts that are prefilled in alternation. */
export const PREFILL_GROUPS = 2;

/** Longest time of one chunk while other sequences wait for their next token. */
const CHUNK_MS = 250;

/** Smallest chunk. */
const MIN_CHUNK = 32;

export interface SchedulerOptions {
  /** Sequences at a time, those being prefilled included. */
  readonly batch: number;
  /** Fewer sequences at a time are taken where they and the weights would need more bytes. */
  readonly memoryLimit?: number | undefined;
  /** Bytes of the prefix cache; by default the last prompts alone. */
  readonly prefixCacheBytes?: number;
  /** Keeps finished answers in the prefix cache, for the next turn of a chat. */
  readonly keepsAnswers?: boolean;
  /** Shortens chunks to 250 ms while sequences decode. Sizes then depend on time. */
  readonly adaptsChunks?: boolean;
  /** Most tokens drafted in a step by prompt lookup; none by default. */
  readonly speculate?: number | undefined;
}

export class Scheduler implements Disposable {
  readonly #batch: Batch;
  readonly #prefixes: PrefixCache;
  readonly #turns = new Turns();
  /** The next one to advance first. */
  readonly #groups: PrefillGroup[] = [];
  readonly #cancelled = new Set<Sequence>();
  /** Requests that failed or ended before they began. */
  readonly #refused: SchedulerEvent[] = [];
  /** Prompt tokens prefilled so far. */
  prefilledTokens = 0;
  /** Milliseconds of prefill per token, smoothed; undefined before the first chunk. */
  #msPerToken: number | undefined;

  constructor(private readonly engine: Engine, private readonly options: SchedulerOptions) {
    this.#prefixes = new PrefixCache(options.prefixCacheBytes);
    const { batch, speculate } = options;
    this.#batch = new Batch(engine, batch, (...row) => this.#keep(...row), speculate);
  }

  [Symbol.dispose](): void {
    this.#batch[Symbol.dispose]();
    for (const group of this.#groups) group[Symbol.dispose]();
    this.#prefixes[Symbol.dispose]();
  }

  /** Requests that are decoded or prefilled. */
  get running(): number {
    return this.#batch.occupied + this.#prefilling.length;
  }

  /** Requests that wait for their prefill. */
  get waiting(): number {
    return this.#waiting.length;
  }

  get isIdle(): boolean {
    return this.#refused.length + this.running + this.waiting === 0;
  }

  /** Bytes of the prefix cache in use. */
  get prefixCacheBytes(): number {
    return this.#prefixes.bytes;
  }

  /** Sequences that are decoded now. */
  get decoding(): number {
    return this.#batch.occupied;
  }

  /** Prompt tokens of all requests that are still to be prefilled, or to be found in the prefix cache. */
  get promptTokens(): number {
    const all = [...this.#prefilling, ...this.#waiting]
      .reduce((sum, { request }) => sum + request.tokens.length, 0);
    return this.#groups.reduce((left, { done }) => left - done, all);
  }

  /** True if a prompt waits or is being prefilled. */
  get isPrefilling(): boolean {
    return this.#prefilling.length + this.waiting > 0;
  }

  /** Adds a request; `index` names it in events. One that cannot be run fails with the next round. */
  add(index: number, request: GenerationRequest): void {
    const { config } = this.engine;
    try {
      checkTokens(config, request.tokens, "continue a prompt");
    } catch (error) {
      this.#refused.push({ kind: "failed", index, error });
      return;
    }
    const sequence = openSequence(config, index, request, (this.options.speculate ?? 0) > 0);
    if (sequence.limit >= 1 || request.promptLogprobs) this.#turns.add(sequence);
    else this.#refused.push({ kind: "done", index, reason: "length" });
  }

  /** Ends a request without an event; its row is free before the next step. */
  cancel(index: number): void {
    const isOf = (sequence: Sequence) => sequence.index === index;
    const waiting = this.#waiting.findIndex(isOf);
    if (waiting >= 0) this.#waiting.splice(waiting, 1);
    else if (!this.#batch.cancel(index)) {
      const open = this.#prefilling.find(isOf);
      if (open) this.#cancelled.add(open);
    }
  }

  /** Prompt tokens of a request that are in the cache; 0 while it waits. */
  progressOf(index: number): number {
    for (const group of this.#groups) {
      const sequence = group.sequences.find((sequence) => sequence.index === index);
      if (sequence) return group.progressOf(sequence);
    }
    return 0;
  }

  /** One decode step, then at most one prefill chunk. */
  async *round(): AsyncGenerator<SchedulerEvent> {
    yield* this.decode();
    yield* this.prefill();
  }

  /** Reports requests that were refused, then decodes one token for every sequence. */
  async *decode(): AsyncGenerator<SchedulerEvent> {
    yield* this.#refused.splice(0);
    if (this.decoding > 0) yield* this.#batch.step();
  }

  /** Prefills one chunk. */
  async *prefill(): AsyncGenerator<SchedulerEvent> {
    const limit = this.#chunk();
    this.#dropCancelled();
    this.#formGroup(limit);
    const group = this.#groups.shift();
    if (!group) return;
    this.#groups.push(group);
    const before = group.done, began = performance.now();
    let finished: Prefilled[];
    try {
      finished = await group.advance(limit);
    } catch (error) {
      // A NaN belongs to these requests; all else is an error of the engine.
      if (!(error instanceof NumericalError)) throw error;
      this.#end(group);
      for (const { index } of group.sequences) yield { kind: "failed", index, error };
      group[Symbol.dispose]();
      return;
    }
    const fed = group.done - before;
    this.prefilledTokens += fed;
    this.#measure(performance.now() - began, fed);
    const events = finished.flatMap((one) => this.#begin(group, one));
    const isFed = (one: Sequence) => group.progressOf(one) === one.request.tokens.length;
    if (finished.length > 0 && group.sequences.every(isFed)) {
      this.#end(group);
      group.keep();
    }
    yield* events;
  }

  get #waiting(): Sequence[] {
    return this.#turns.waiting;
  }

  get #prefilling(): Sequence[] {
    return this.#groups.flatMap(({ sequences }) => sequences);
  }

  /** Tokens per chunk. */
  #chunk(): number {
    const { prefillChunk } = this.engine.device.traits;
    const isFree = !this.options.adaptsChunks || this.#msPerToken === undefined ||
      this.decoding === 0;
    if (isFree) return prefillChunk;
    const fitting = 2 ** Math.floor(Math.log2(Math.max(1, CHUNK_MS / this.#msPerToken!)));
    return Math.min(prefillChunk, Math.max(MIN_CHUNK, fitting));
  }

  #measure(ms: number, tokens: number): void {
    const now = ms / Math.max(1, tokens);
    const known = this.#msPerToken;
    // The first chunk of a size prepares its program: a slow one counts little.
    this.#msPerToken = known === undefined ? now : Math.min(0.8 * known + 0.2 * now, 2 * known);
  }

  #formGroup(limit: number): void {
    if (this.#groups.length >= PREFILL_GROUPS || this.#waiting.length === 0) return;
    const most = this.#mostAtOnce() - this.running;
    if (most <= 0) return;
    const [prefixes, active] = [this.#prefixes, this.#groups];
    const underWay = [...this.#prefilling, ...this.#batch.sequences];
    const roomFor = (sequence: Sequence, group: readonly Sequence[]) =>
      freeFor(sequence, [...underWay, ...group], { free: most, batch: this.options.batch });
    const taken = takeGroup(this.#waiting, { limit, most, roomFor, prefixes, active });
    if (taken.length === 0) return;
    this.#turns.taken(taken);
    // Put it first: the other group had the previous chunk.
    this.#groups.unshift(new PrefillGroup(this.engine, taken, this.#prefixes));
  }

  /** Sequences that may be under way together, with those that wait. */
  #mostAtOnce(): number {
    const { batch, memoryLimit: limit } = this.options;
    if (limit === undefined) return batch;
    const open = [...this.#waiting, ...this.#prefilling, ...this.#batch.sequences];
    const lengths = open.map(({ request, limit }) => request.tokens.length + limit);
    const slots = Math.max(...lengths);
    return largestBatch(this.engine, { use: "generate", most: batch, slots, limit });
  }

  /** Chooses the first token of a prefilled request and gives it a row, unless it ends there. */
  #begin(group: PrefillGroup, prefilled: Prefilled): SchedulerEvent[] {
    const { sequence, cached, logprobs, row, first } = prefilled;
    if (this.#cancelled.has(sequence)) return [];
    const { index, request } = sequence;
    const events: SchedulerEvent[] = [{ kind: "prefilled", index, cached, logprobs }];
    if (!first) return [...events, { kind: "done", index, reason: "length" }];
    try {
      const choice = first();
      append(sequence, choice.token);
      events.push({ kind: "token", index, ...choice });
    } catch (error) {
      return [{ kind: "failed", index, error }];
    }
    sequence.used = request.tokens.length;
    const reason = finishReason(sequence);
    if (reason) events.push({ kind: "done", index, reason });
    else this.#batch.place(sequence, group.cache, row);
    return events;
  }

  /** A group of which all members are cancelled is not computed. */
  #dropCancelled(): void {
    for (const group of [...this.#groups]) {
      if (!group.sequences.every((sequence) => this.#cancelled.has(sequence))) continue;
      this.#end(group);
      group[Symbol.dispose]();
    }
  }

  #end(group: PrefillGroup): void {
    this.#groups.splice(this.#groups.indexOf(group), 1);
    for (const sequence of group.sequences) this.#cancelled.delete(sequence);
  }

  /** Copies a finished sequence into the prefix cache, as far as it was fed. */
  #keep({ request, answer, used }: Sequence, cache: KvCache, row: number): void {
    if (!this.options.keepsAnswers || request.promptLogprobs) return;
    const tokens = [...request.tokens, ...answer].slice(0, used);
    const own = this.engine.createCache(1, tokens.length + 1);
    own.copyFrom(cache, [[row, 0]], tokens.length);
    this.#prefixes.add(own, [tokens]);
  }
}
