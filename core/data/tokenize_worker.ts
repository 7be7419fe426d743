/** A worker that encodes documents; see `encode_pool.ts`. */
/// <reference no-default-lib="true" />
/// <reference lib="deno.worker" />
import { answerQuestions } from "../base/thread_worker.ts";
import { batchEncoder, type EncodeRequest } from "./encode_pool.ts";

let encode: ReturnType<typeof batchEncoder> | undefined;

answerQuestions(
  ({ settings, ...batch }: EncodeRequest) => (encode ??= batchEncoder(settings))(batch),
  ({ ids, lengths, targets }) => [ids.buffer, lengths.buffer, targets.buffer],
);
