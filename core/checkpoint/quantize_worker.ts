/** A worker that quantizes rows of stored matrices, and writes them where a place is given; see `quantizer.ts`. */
/// <reference no-default-lib="true" />
/// <reference lib="deno.worker" />
import { answerQuestions } from "../base/thread_worker.ts";
import { type PlacedBatch, writeBatch } from "./coded_file.ts";
import { quantizeBatch, type RowBatch } from "./quantizer.ts";

answerQuestions(
  (batch: RowBatch | PlacedBatch) =>
    Promise.resolve("places" in batch ? writeBatch(batch) : quantizeBatch(batch)),
  (made) => made ? Object.values(made).map(({ buffer }) => buffer) : [],
);
