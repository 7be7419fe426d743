/**
 * Encodes long texts on a thread of its own, so that a server answers others meanwhile.
 *
 * The thread starts with the first long text, opens the tokenizer itself, and ends when none has come for
 * a while. Texts are encoded one after another.
 */
import { errorFrom, type PlainError } from "../base/errors.ts";
import { NO_PERMISSIONS } from "../base/worker_permissions.ts";
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
  /** True if the ids are wanted as JSON: writing millions takes longer than finding them. */
  readonly asJson: boolean;
}

interface IdsAnswer {
  readonly ids: Int32Array<ArrayBuffer>;
}

interface JsonAnswer {
  readonly json: Uint8Array<ArrayBuffer>;
  readonly count: number;
}

/** The ids or, where it was asked for, their JSON; or why there are none. */
export type BackgroundAnswer =
  | IdsAnswer
  | JsonAnswer
  | { readonly error: PlainError | string };

let running: BackgroundThread | undefined;

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
  const { directory } = tokenizer;
  return (await ask<IdsAnswer>({ directory, text, options, asJson: false })).ids;
}

/** Ids of a text as a JSON list, and their number. */
export async function encodeToJson(
  tokenizer: Tokenizer,
  text: string,
  options: EncodeOptions = {},
): Promise<{ readonly json: BlobPart; readonly count: number }> {
  if (text.length < LONG_TEXT) {
    const ids = tokenizer.encode(text, options);
    return { json: JSON.stringify(ids), count: ids.length };
  }
  const { directory } = tokenizer;
  return await ask<JsonAnswer>({ directory, text, options, asJson: true });
}

async function ask<T extends IdsAnswer | JsonAnswer>(request: BackgroundRequest): Promise<T> {
  const answer = await (running ??= new BackgroundThread()).ask(request);
  if (!("error" in answer)) return answer as T;
  throw typeof answer.error === "string" ? new Error(answer.error) : errorFrom(answer.error);
}

class BackgroundThread {
  readonly #worker: Worker;
  readonly #pending: ((answer: BackgroundAnswer) => void)[] = [];
  #idle: ReturnType<typeof setTimeout> | undefined;

  constructor() {
    this.#worker = new Worker(new URL("./background_worker.ts", import.meta.url), {
      type: "module",
      // It reads the tokenizer and nothing else of the machine.
      deno: { permissions: { ...NO_PERMISSIONS, read: "inherit" } },
    });
    this.#worker.onmessage = ({ data }: MessageEvent<BackgroundAnswer>) => {
      this.#pending.shift()!(data);
      if (this.#pending.length > 0) return;
      this.#idle = setTimeout(() => this.#end("idle"), IDLE_MS);
      Deno.unrefTimer(this.#idle as unknown as number);
    };
    this.#worker.onerror = (event) => {
      event.preventDefault(); // else the runtime ends the program
      this.#end(`background tokenizer: ${event.message}`);
    };
  }

  get waiting(): number {
    return this.#pending.length;
  }

  ask(request: BackgroundRequest): Promise<BackgroundAnswer> {
    clearTimeout(this.#idle);
    this.#worker.postMessage(request);
    return new Promise((resolve) => this.#pending.push(resolve));
  }

  #end(error: string): void {
    clearTimeout(this.#idle);
    this.#worker.terminate();
    running = undefined;
    for (const resolve of this.#pending.splice(0)) resolve({ error });
  }
}
