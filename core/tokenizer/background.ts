/**
 * Encodes long texts on a thread of its own, so that a server answers others meanwhile.
 *
 * The thread starts with the first long text, opens the tokenizer itself, and ends when none has come for
 * a while. Texts are encoded one after another.
 */
import { LazyThread, Thread } from "../base/thread.ts";
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

const thread = new LazyThread<BackgroundRequest, Int32Array>(
  () => new Thread(new URL("./background_worker.ts", import.meta.url), "background tokenizer"),
  IDLE_MS,
);

/** Long texts that are being encoded or wait for it. */
export function waitingTexts(): number {
  return thread.waiting;
}

/** Ids of a text; a long one is encoded in the background. */
export async function encodeBeside(
  tokenizer: Tokenizer,
  text: string,
  options: EncodeOptions = {},
): Promise<ArrayLike<number>> {
  if (text.length < LONG_TEXT) return tokenizer.encode(text, options);
  return await thread.ask({ directory: tokenizer.directory, text, options });
}
