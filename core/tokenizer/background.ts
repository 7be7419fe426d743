/**
 * Encodes long texts on a thread of its own, so that a server answers others meanwhile.
 *
 * The thread starts with the first long text, opens the tokenizer itself, and ends when none has come for
 * a while. Texts are encoded one after another.
 */
import { Thread } from "../base/thread.ts";
import type { EncodeOptions, Tokenizer } from "./types.ts";

/** From this many characters on a text is encoded in the background: milliseconds of work. */
const LONG_TEXT = 16_384;

/** Time without a text after which the thread ends. */
const IDLE_MS = 5000;

/** A text for the thread. */
export interface BackgroundRequest {
  /** Folder of the tokenizer. */
  readonly directory: string;
  readonly text: string;
  readonly options: EncodeOptions;
}

let running: Thread<BackgroundRequest, Int32Array> | undefined;
let idle: ReturnType<typeof setTimeout> | undefined;

/** Long texts that are being encoded or wait for it. */
export function waitingTexts(): number {
  return running?.waiting ?? 0;
}

/** Ids of a text; a long one is encoded in the background. */
export async function encodeBeside(
  tokenizer: Tokenizer,
  text: string,
  options: EncodeOptions = {},
): Promise<ArrayLike<number>> {
  if (text.length < LONG_TEXT) return tokenizer.encode(text, options);
  clearTimeout(idle);
  if (!running || running.hasEnded) {
    const worker = new URL("./background_worker.ts", import.meta.url);
    running = new Thread(worker, "background tokenizer");
  }
  const thread = running;
  try {
    return await thread.ask({ directory: tokenizer.directory, text, options });
  } finally {
    if (thread.waiting === 0) {
      clearTimeout(idle);
      idle = setTimeout(() => thread.end(), IDLE_MS);
      Deno.unrefTimer(idle as unknown as number);
    }
  }
}
