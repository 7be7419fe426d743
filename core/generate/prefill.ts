/**
 * Feeds a prompt to a model in chunks, so that memory does not grow with its length.
 */
import { DataError } from "../errors.ts";
import type { ModelConfig } from "../model/config.ts";
import type { HostArray } from "../runtime/device.ts";
import type { Engine } from "./engine.ts";
import type { KvCache } from "./kv_cache.ts";

/** Tokens per chunk: enough rows for full speed of the matrix products. */
export const CHUNK = 256;

/**
 * Checks token ids and length against the model. `purpose` completes "Cannot …" in messages.
 * @throws {DataError} for no tokens, an id outside the vocabulary, or more tokens than positions
 */
export function checkTokens(config: ModelConfig, ids: readonly number[], purpose: string): void {
  if (ids.length === 0) {
    throw new DataError(`Cannot ${purpose}: found no tokens, expected at least one`);
  }
  const at = ids.findIndex((id) => !Number.isInteger(id) || id < 0 || id >= config.vocabSize);
  if (at >= 0) {
    throw new DataError(
      `Cannot ${purpose}: found token id ${ids[at]} at position ${at}, ` +
        `expected an integer from 0 to ${config.vocabSize - 1}`,
    );
  }
  if (ids.length > config.maxPositionEmbeddings) {
    throw new DataError(
      `Cannot ${purpose}: found ${ids.length} tokens, ` +
        `expected at most ${config.maxPositionEmbeddings} (max_position_embeddings)`,
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
  start = 0,
): Promise<ReadonlyMap<string, HostArray>> {
  for (;; start += CHUNK) {
    const ids = tokens.slice(start, start + CHUNK);
    const last = start + CHUNK >= tokens.length;
    const outputs = await engine.forward(cache, {
      ids: [ids],
      start: [start],
      select: [ids.length - 1],
    });
    if (last) return outputs;
  }
}
