/** A worker that hashes stored tensors; see `backbone.ts`. */
/// <reference no-default-lib="true" />
/// <reference lib="deno.worker" />
import { answerQuestions } from "../base/thread_worker.ts";
import { hashTensors } from "./backbone.ts";
import type { OutputTensor } from "./write.ts";

answerQuestions((tensors: readonly OutputTensor[]) => hashTensors(tensors));
