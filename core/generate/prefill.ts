/**
 * Feeds prompts to a model in chunks, so that memory does not grow with their length: for generation,
 * search, scores and benchmarks.
 */
import { DataError } from "../base/errors.ts";
import type { ModelConfig } from "../model/config.ts";
import type { ForwardOptions } from "../model/forward.ts";
import type { Device, HostArray } from "../runtime/device.ts";
import type { Engine } from "./engine.ts";
import type { KvCache } from "./kv_cache.ts";
import type { PrefixCache } from "./prefix_cache.ts";

/**
 * Checks token ids and length against the model. `purpose` completes "cannot …" in messages; `unread`
 * tokens at the end are only scored, so they take no position.
 * @throws {DataError} for no tokens, an id outside the vocabulary, or more tokens than positions
 */
export function checkTokens(
  config: ModelConfig,
  ids: readonly number[],
  purpose: string,
  { unread = 0 } = {},
): void {
  if (ids.length === 0) {
    throw new DataError(`cannot ${purpose}: there are no tokens`);
  }
  const at = ids.findIndex((id) => !Number.isInteger(id) || id < 0 || id >= config.vocabSize);
  if (at >= 0) {
    throw new DataError(
      `cannot ${purpose}: token id ${ids[at]} at position ${at}, ` +
        `expected an integer from 0 to ${config.vocabSize - 1}`,
    );
  }
  const limit = config.maxPositionEmbeddings;
  if (ids.length > limit + unread) {
    const last = unread > 0 ? ` and ${unread} that is only scored` : "";
    throw new DataError(
      `cannot ${purpose}: ${ids.length} tokens exceed the model's context of ${limit}${last}`,
      { hints: ["shorten the text"] },
    );
  }
}

/** Tokens to append to one sequence of a cache, from slot `start` on. */
export interface ChunkRow {
  readonly tokens: readonly number[];
  readonly start: number;
}

/** A token of a chunk whose outputs are wanted, and the token it is scored on. */
export interface ChunkPlace {
  readonly b: number;
  readonly t: number;
  readonly target?: number;
}

/** Options of running a chunk. */
export interface ChunkOptions extends ForwardOptions {
  /** The length is rounded up to a multiple of this. */
  readonly step?: number;
  /** For the `sample` head: `samplingNumbers` of every place, one after the other. */
  readonly sampling?: readonly number[];
}

/**
 * Appends a chunk of tokens to every sequence of a cache in one step and returns its outputs by place.
 * Shorter rows are padded on the right: what lies after a prompt is not read, and is overwritten by the
 * next tokens.
 */
export async function appendChunk(
  engine: Engine,
  cache: KvCache,
  rows: readonly ChunkRow[],
  places: readonly ChunkPlace[],
  { step = 1, sampling, ...options }: ChunkOptions,
): Promise<ReadonlyMap<string, HostArray>> {
  const longest = Math.max(...rows.map(({ tokens }) => tokens.length));
  const room = cache.capacity - Math.max(...rows.map(({ start }) => start));
  const size = paddedLength(engine.device, roundUp(longest, step), room);
  const isScored = options.head === "score" || options.head === "streams";
  return await engine.forward(cache, {
    ids: rows.map(({ tokens }) => Array.from({ length: size }, (_, t) => tokens[t] ?? 0)),
    start: rows.map(({ start }) => start),
    counts: rows.map(({ tokens }) => tokens.length),
    select: places.map(({ b, t }) => b * size + t),
    ...(isScored ? { targets: places.map(({ target = 0 }) => target) } : {}),
    ...(sampling ? { sampling } : {}),
  }, options);
}

/**
 * Appends prompts of one length to the sequences of a cache, chunk by chunk, and returns the outputs for
 * the last token of each. The cache already holds the first `start` tokens.
 */
export async function prefill(
  engine: Engine,
  cache: KvCache,
  prompts: readonly (readonly number[])[],
  { start = 0, onChunk, ...options }: ForwardOptions & {
    readonly start?: number;
    /** Called with the tokens of each chunk. */
    readonly onChunk?: ((tokens: number) => void) | undefined;
  },
): Promise<ReadonlyMap<string, HostArray>> {
  const { prefillChunk: chunk } = engine.device.traits;
  for (;; start += chunk) {
    const rows = prompts.map((tokens) => ({ tokens: tokens.slice(start, start + chunk), start }));
    const places = rows.map(({ tokens }, b) => ({ b, t: tokens.length - 1 }));
    const outputs = await appendChunk(engine, cache, rows, places, options);
    onChunk?.(rows.reduce((sum, { tokens }) => sum + tokens.length, 0));
    if (start + chunk >= prompts[0]!.length) return outputs;
  }
}

/**
 * A cache of one sequence that holds a prompt, with room for one token more, and the logits of its last
 * token. What the prompt shares with one before is not computed again. `prefixes` takes over the cache,
 * which may be read, not written, until the next prompt.
 */
export async function prefillPrompt(
  engine: Engine,
  tokens: readonly number[],
  prefixes: PrefixCache,
  onChunk?: (tokens: number) => void,
): Promise<{ cache: KvCache; outputs: ReadonlyMap<string, HostArray> }> {
  const cache = engine.createCache(1, tokens.length + 1);
  const start = prefixes.copyInto(cache, 0, tokens);
  const outputs = await prefill(engine, cache, [tokens], { head: "logits", start, onChunk });
  prefixes.add(cache, [tokens]);
  return { cache, outputs };
}

/**
 * Padded size of a chunk of `tokens` tokens. Where programs are graphs of their own for every size, chunks
 * come in few: what is added lies after the prompt, which attention does not read, and the next tokens
 * are written.
 */
export function paddedLength(device: Device, tokens: number, room: number): number {
  if (!device.traits.staticShapes) return tokens;
  const step = tokens <= 64 ? 16 : tokens <= 256 ? 64 : 256;
  return Math.min(Math.ceil(tokens / step) * step, room);
}

/** The next multiple of a step, at least one. */
export function roundUp(size: number, step: number): number {
  return Math.max(1, Math.ceil(size / step)) * step;
}
