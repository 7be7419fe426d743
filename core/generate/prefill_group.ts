/**
 * Prompts that are prefilled together, chunk by chunk, in a KV cache of their own with one row each.
 *
 * Several prompts form a group only when one chunk holds them all, padded on the right: what lies after
 * a prompt is not read, and is overwritten by the next tokens. A longer prompt is a group of its own.
 */
import type { Engine } from "./engine.ts";
import type { KvCache } from "./kv_cache.ts";
import { tokenLogprobs } from "./logprobs.ts";
import { appendChunk, type ChunkRow, paddedLength } from "./prefill.ts";
import { commonLength, LEAST_SHARED, type PrefixCache } from "./prefix_cache.ts";
import type { TokenLogprobs } from "./request.ts";
import { type Choice, choose, headFor, numbersOf, type Sequence } from "./sequence.ts";

/** Slots that the cache of a group of several prompts may have. */
export const GROUP_SLOTS = 8192;

/**
 * Tokens of a chunk with results at every one: logits of this many rows are read on the host, which
 * answers nothing else meanwhile.
 */
const SCORED_CHUNK = 32;

/** A member of a group. */
interface Member {
  readonly sequence: Sequence;
  /** Tokens from the prefix cache. */
  readonly cached: number;
  /** Tokens that it shares with a prompt before, after which its states are kept for the next such prompt. */
  readonly parting: number;
  /** Tokens in the cache so far. */
  done: number;
  readonly logprobs: TokenLogprobs[] | undefined;
}

/** A prompt that is in the cache. */
export interface Prefilled {
  readonly sequence: Sequence;
  readonly cached: number;
  readonly logprobs: readonly TokenLogprobs[] | undefined;
  /** Row of the group's cache. */
  readonly row: number;
  /** The first new token, or why there is none; absent where none is asked for. */
  readonly first: (() => Choice) | undefined;
}

export class PrefillGroup implements Disposable {
  readonly cache: KvCache;
  readonly #members: readonly Member[];
  #ownsCache = true;

  constructor(
    private readonly engine: Engine,
    sequences: readonly Sequence[],
    private readonly prefixes: PrefixCache,
  ) {
    const known = sequences.map(({ request: { tokens, promptLogprobs } }) =>
      promptLogprobs ? 0 : prefixes.sharedLength(tokens)
    );
    const left = sequences.map(({ request }, b) => request.tokens.length - known[b]!);
    // Every row takes the longest remainder, also the one that has the most tokens already.
    const end = Math.max(...known) + Math.max(...left) + 1;
    // Where few sizes are prepared, the last chunk is padded, which takes room.
    const slots = paddedLength(engine.device, end, Infinity);
    const { length } = sequences;
    const rows = engine.device.traits.staticShapes ? 2 ** Math.ceil(Math.log2(length)) : length;
    this.cache = engine.createCache(rows, slots);
    this.#members = sequences.map((sequence, row) => {
      const { tokens, promptLogprobs } = sequence.request;
      const shared = promptLogprobs || !this.cache.hasStates ? 0 : prefixes.commonLength(tokens);
      const cached = promptLogprobs ? 0 : prefixes.copyInto(this.cache, row, tokens);
      const parting = shared - cached >= LEAST_SHARED ? shared : 0;
      return { sequence, cached, parting, done: cached, logprobs: promptLogprobs ? [] : undefined };
    });
  }

  /** Requests in the group. */
  get sequences(): Sequence[] {
    return this.#members.map(({ sequence }) => sequence);
  }

  /** Tokens of all requests that are in the cache. */
  get done(): number {
    return this.#members.reduce((sum, { done }) => sum + done, 0);
  }

  /** Tokens of a request that are in the cache. */
  progressOf(sequence: Sequence): number {
    return this.#members.find((member) => member.sequence === sequence)?.done ?? 0;
  }

  /** Returns whether a prompt should wait to reuse this group's prefix. */
  shares(tokens: readonly number[], known: number): boolean {
    return sharesWithOne(this.sequences, tokens, known);
  }

  /** Computes one chunk of at most `limit` tokens; returns what is finished by it. */
  async advance(limit: number): Promise<Prefilled[]> {
    const { device, config } = this.engine;
    const isScored = this.#members.some(({ logprobs }) => logprobs);
    const most = Math.min(limit, isScored ? SCORED_CHUNK : Infinity);
    const left = this.#members.map(({ sequence, parting, done }) =>
      (done < parting ? parting : sequence.request.tokens.length) - done
    );
    const T = Math.min(Math.max(...left), Math.max(1, Math.floor(most / left.length)));

    const wanted = this.#members.flatMap((member, b) =>
      this.#wanted(member, b, Math.min(T, left[b]!))
    );
    // The first chunks of a prompt only fill the cache, but a program selects at least one token.
    const selected = wanted.length > 0 ? wanted : [{ b: 0, t: 0, isLast: false }];
    const options = headFor(device, this.sequences.map(({ request }) => request));
    // Making these numbers draws from the requests' random streams.
    const numbers = () =>
      selected.flatMap(({ b, isLast }) =>
        numbersOf(isLast ? this.#members[b]!.sequence.request : undefined)
      );
    const rows = Array.from({ length: this.cache.batch }, (_, b): ChunkRow => {
      const { sequence, done } = this.#members[b] ?? { done: 0 };
      const end = done + Math.min(T, left[b] ?? 0);
      return { tokens: sequence?.request.tokens.slice(done, end) ?? [], start: done };
    });
    const outputs = await appendChunk(this.engine, this.cache, rows, selected, {
      ...options,
      ...(options.head === "sample" ? { sampling: numbers() } : {}),
    });

    const finished: Prefilled[] = [];
    for (const [row, { b, t, isLast }] of wanted.entries()) {
      const { sequence, cached, logprobs, done } = this.#members[b]!;
      const { request: { tokens, topLogprobs = 0 }, limit: tokensLeft } = sequence;
      if (isLast) {
        const first = tokensLeft > 0 ? () => choose(config, outputs, row, sequence) : undefined;
        finished.push({ sequence, cached, logprobs, row: b, first });
      } else {
        const V = config.vocabSize;
        const logits = outputs.get("logits")!.subarray(row * V, (row + 1) * V);
        logprobs!.push(tokenLogprobs(logits, tokens[done + t + 1]!, topLogprobs));
      }
    }
    for (const [b, member] of this.#members.entries()) {
      member.done += rows[b]!.tokens.length;
      if (member.done === member.parting) this.#keepStart(member, b);
    }
    return finished;
  }

  /** Keeps the first tokens of a prompt, which another shares, with the states after them. */
  #keepStart({ sequence, parting }: Member, row: number): void {
    const own = this.engine.createCache(1, parting + 1);
    own.copyFrom(this.cache, [[row, 0]], parting);
    this.prefixes.add(own, [sequence.request.tokens.slice(0, parting)]);
  }

  /** Places of the next `count` tokens of a member whose results are wanted. */
  #wanted({ sequence: { request }, done, logprobs }: Member, b: number, count: number) {
    const last = request.tokens.length - 1;
    const first = logprobs ? done : Math.max(done, last);
    const end = done + count;
    return Array.from({ length: Math.max(0, end - first) }, (_, i) => {
      const at = first + i;
      return { b, t: at - done, isLast: at === last };
    });
  }

  /** Hands the cache over to the prefix cache. */
  keep(): void {
    // What several prompts share would make room for the rest of one of them.
    const isShared = this.cache.hasStates &&
      this.#members.some((one) => one.parting + one.cached > 0);
    if (isShared && !this.prefixes.keepsSeveral) return this[Symbol.dispose]();
    this.#ownsCache = false;
    this.prefixes.add(this.cache, this.sequences.map(({ request }) => request.tokens));
  }

  [Symbol.dispose](): void {
    if (this.#ownsCache) this.cache[Symbol.dispose]();
  }
}

/** Takes from the waiting requests those that one chunk of `limit` tokens holds, in their order. */
export function takeGroup(
  waiting: Sequence[],
  { limit, most, roomFor, prefixes, active }: {
    limit: number;
    most: number;
    /** Most sequences of a group that one may join. */
    roomFor: (sequence: Sequence, group: readonly Sequence[]) => number;
    prefixes: PrefixCache;
    /** Groups under way. */
    active: readonly PrefillGroup[];
  },
): Sequence[] {
  const group: Sequence[] = [];
  let longest = 0, slots = 0;
  for (const sequence of [...waiting]) {
    if (group.length === most) break;
    if (group.length >= roomFor(sequence, group)) continue;
    const { tokens, promptLogprobs } = sequence.request;
    const cached = promptLogprobs ? 0 : prefixes.sharedLength(tokens);
    if (!promptLogprobs && active.some((other) => other.shares(tokens, cached))) continue;
    if (group.length > 0) {
      const size = group.length + 1;
      const isAlone = [...group, sequence].some(({ request }) => request.promptLogprobs);
      const fits = size * Math.max(longest, tokens.length - cached) <= limit &&
        size * Math.max(slots, tokens.length) <= GROUP_SLOTS;
      if (isAlone || !fits || sharesWithOne(group, tokens, cached)) continue;
    }
    longest = Math.max(longest, tokens.length - cached);
    slots = Math.max(slots, tokens.length);
    group.push(sequence);
    waiting.splice(waiting.indexOf(sequence), 1);
  }
  return group;
}

function sharesWithOne(group: readonly Sequence[], tokens: readonly number[], known: number) {
  const least = Math.max(LEAST_SHARED, known + 1);
  return group.some(({ request }) =>
    Math.min(commonLength(request.tokens, tokens), tokens.length - 1) >= least
  );
}
