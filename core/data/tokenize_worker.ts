/**
 * A worker that encodes documents: gets its settings, then batches, and answers each. See
 * `encode_pool.ts`.
 */
/// <reference no-default-lib="true" />
/// <reference lib="deno.worker" />
import { batchEncoder, type EncodeRequest, toAnswer } from "./encode_batch.ts";

let encode: ReturnType<typeof batchEncoder> | undefined;

self.onmessage = async ({ data }: MessageEvent<EncodeRequest>) => {
  if ("settings" in data) {
    encode = batchEncoder(data.settings);
    return;
  }
  const { batch, documents } = data;
  try {
    const encoded = await encode!(documents);
    const transfer = [encoded.ids, encoded.lengths, encoded.targets].map(({ buffer }) => buffer);
    self.postMessage({ batch, encoded }, transfer as ArrayBuffer[]);
  } catch (error) {
    self.postMessage(toAnswer(batch, error));
  }
};
