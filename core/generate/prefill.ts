/**
 * Feeds a prompt to a model in chunks, so that memory does not grow with its length.
 */
import { DataError } from "../base/errors.ts";
import type { ModelConfig } from "../model/config.ts";
import type { Device, HostArray } from "../runtime/device.ts";
import type { Engine } from "./engine.ts";
import type { KvCache } from "./kv_cache.ts";

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

/**
 * Appends a prompt to the one sequence of a cache and returns the outputs for its last token; views
 * that the next step overwrites. The cache already holds the first `start` tokens.
 */
export async function prefill(
  engine: Engine,
  cache: KvCache,
  tokens: readonly number[],
  { start = 0 }: { start?: number } = {},
): Promise<ReadonlyMap<string, HostArray>> {
  const { prefillChunk: chunk } = engine.device.traits;
  for (;; start += chunk) {
    const ids = tokens.slice(start, start + chunk);
    const last = start + chunk >= tokens.length;
    const size = paddedLength(engine.device, ids.length, cache.capacity - start);
    const outputs = await engine.forward(cache, {
      ids: [[...ids, ...new Array(size - ids.length).fill(0)]],
      start: [start],
      select: [ids.length - 1],
    });
    if (last) return outputs;
  }
}

/**
 * The size of a chunk of so many tokens. Where programs are graphs of their own for every size, chunks
 * come in few: what is added lies behind the prompt, which attention does not read, and the next tokens
 * are written.
 */
export function paddedLength(device: Device, tokens: number, room: number): number {
  if (!device.traits.staticShapes) return tokens;
  const step = tokens <= 64 ? 16 : tokens <= 256 ? 64 : 256;
  return Math.min(Math.ceil(tokens / step) * step, room);
}
