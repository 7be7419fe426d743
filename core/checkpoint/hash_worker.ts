/**
 * A worker that hashes stored tensors: gets a list of them, answers once. See `backbone.ts`.
 */
/// <reference no-default-lib="true" />
/// <reference lib="deno.worker" />
import { answerHashRequest } from "./backbone.ts";

self.onmessage = async ({ data }) => self.postMessage(await answerHashRequest(data));
