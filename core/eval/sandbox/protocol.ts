/**
 * Messages between the evaluator and a sandbox child: JSON lines on stdin and stdout.
 *
 * Lines of the child begin with a token it was told first. Whatever else appears on its stdout carries
 * no token and is dropped. A child ends when its stdin does.
 */
import type { End, Job, Results } from "./job.ts";

/** First argument of a child that is the program itself; `child.ts` says what follows. */
export const SANDBOX_ARGUMENT = "--sandbox-child";

/** First line to a child. */
export interface Settings {
  readonly token: string;
  /** The interpreter's package, with a slash at the end: the only folder its worker may read. */
  readonly folder: string;
  /** Resident bytes of the whole child. */
  readonly residentBytes: number;
}

/** To a child, after the settings. */
export type Request =
  | { readonly type: "job"; readonly id: number; readonly job: Job }
  | { readonly type: "stop"; readonly id: number };

/** From a child. After an end with `last` it exits. */
export type Answer =
  | { readonly type: "ready"; readonly version: string }
  | { readonly type: "broken"; readonly detail: string }
  | ({ readonly type: "results"; readonly id: number } & Results)
  | ({ readonly type: "end"; readonly id: number; readonly last: boolean } & End);

/** Indices into the memory that a child shares with its worker. */
export const SHARED = { call: 0, stop: 1, length: 2 } as const;

/** Values of `SHARED.call` other than the index of a call. */
export const CALL = { idle: -2, loading: -1 } as const;

/** To a worker; `folder` is a file URL. */
export type WorkerRequest =
  | { readonly type: "open"; readonly folder: string; readonly shared: SharedArrayBuffer }
  | { readonly type: "job"; readonly job: Job };

/** From a worker. `rest` follows an end that is not the last: ready for a job again. */
export type WorkerAnswer =
  | { readonly type: "ready"; readonly version: string }
  | ({ readonly type: "results" } & Results)
  | ({ readonly type: "end"; readonly last: boolean } & End)
  | { readonly type: "rest" };

/** A line that says `message`. */
export function line(message: unknown, token = ""): Uint8Array<ArrayBuffer> {
  return new TextEncoder().encode(`${token}${JSON.stringify(message)}\n`);
}

/** Longest line that is kept. A batch of results has at most 2 Mi characters, escaped once more. */
const LONGEST = 8 * 2 ** 20;

/** The lines of a byte stream; longer ones than `longest` are dropped, since none of ours is. */
export async function* lines(
  stream: ReadableStream<Uint8Array<ArrayBuffer>>,
  longest = LONGEST,
): AsyncGenerator<string> {
  let begun: string[] = [];
  let length = 0;
  for await (const text of stream.pipeThrough(new TextDecoderStream())) {
    const parts = text.split("\n");
    for (const part of parts.slice(0, -1)) {
      if (length + part.length <= longest) yield begun.join("") + part;
      [begun, length] = [[], 0];
    }
    const rest = parts.at(-1)!;
    length += rest.length;
    if (length <= longest) begun.push(rest);
    else begun = [];
  }
}

/** The message in a line of a child, undefined if the line is not its own. */
export function answerIn(text: string, token: string): Answer | undefined {
  const start = text.lastIndexOf(token);
  if (start < 0) return undefined;
  try {
    return JSON.parse(text.slice(start + token.length));
  } catch {
    return undefined;
  }
}
