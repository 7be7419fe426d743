/** A worker that quantizes rows of stored matrices; see `quantizer.ts`. */
/// <reference no-default-lib="true" />
/// <reference lib="deno.worker" />
import { answerQuestions } from "../base/thread_worker.ts";
import { quantizeBatch, type RowBatch } from "./quantizer.ts";

answerQuestions(
  (batch: RowBatch) => Promise.resolve(quantizeBatch(batch)),
  (made) => Object.values(made).map(({ buffer }) => buffer),
);
