/** A worker that encodes long texts: answers each request in turn. See `background.ts`. */
/// <reference no-default-lib="true" />
/// <reference lib="deno.worker" />
import { ParscaleError, plainError } from "../base/errors.ts";
import type { BackgroundAnswer, BackgroundRequest } from "./background.ts";
import { openTokenizer, type Tokenizer } from "./tokenizer.ts";

/** Ids that are written at a time. */
const CHUNK = 1 << 16;

/** The tokenizer in use; another folder's takes its place. */
let opened: { readonly directory: string; readonly tokenizer: Promise<Tokenizer> } | undefined;

/** Ends when all earlier requests are answered. */
let last = Promise.resolve();

self.onmessage = ({ data }: MessageEvent<BackgroundRequest>) => {
  last = last.then(() => encode(data));
};

async function encode({ directory, text, options, asJson }: BackgroundRequest): Promise<void> {
  try {
    if (opened?.directory !== directory) {
      opened = { directory, tokenizer: openTokenizer(directory) };
    }
    const ids = (await opened.tokenizer).encode(text, options);
    if (asJson) {
      const json = writeJson(ids);
      answer({ json, count: ids.length }, json.buffer);
    } else {
      const copy = Int32Array.from(ids);
      answer({ ids: copy }, copy.buffer);
    }
  } catch (error) {
    answer({ error: error instanceof ParscaleError ? plainError(error) : String(error) });
  }
}

function answer(message: BackgroundAnswer, ...transfer: ArrayBuffer[]): void {
  self.postMessage(message, transfer);
}

function writeJson(ids: readonly number[]): Uint8Array<ArrayBuffer> {
  const encoder = new TextEncoder(), parts: Uint8Array[] = [];
  let length = 2;
  for (let at = 0; at < ids.length; at += CHUNK) {
    const part = encoder.encode((at === 0 ? "" : ",") + ids.slice(at, at + CHUNK).join(","));
    parts.push(part);
    length += part.length;
  }
  const json = new Uint8Array(length).fill(0x5b, 0, 1).fill(0x5d, length - 1);
  let at = 1;
  for (const part of parts) {
    json.set(part, at);
    at += part.length;
  }
  return json;
}
