/**
 * What the evaluator and a sandbox child say to each other: JSON lines on stdin and stdout.
 *
 * Lines of the child begin with a token it was told first. Whatever else appears on its stdout, from
 * the interpreter or by a trick of the tested code, carries no token and is dropped.
 */
import type { End, Job, Results } from "./sandbox.ts";

/** First line to a child. */
export interface Settings {
  readonly token: string;
  /** A memory snapshot of a loaded interpreter; null loads the slow way. */
  readonly snapshot: string | null;
  /** The interpreter's package, the only folder its worker may read. */
  readonly folder: string;
  readonly memoryBytes: number;
}

/** To a child, after the settings. */
export type Request =
  | { readonly type: "job"; readonly id: number; readonly job: Job }
  | { readonly type: "stop"; readonly id: number };

/** From a child. */
export type Answer =
  | { readonly type: "ready"; readonly version: string }
  | { readonly type: "broken"; readonly detail: string }
  | ({ readonly type: "results"; readonly id: number } & Results)
  /** `kills` counts the workers ended by force since the start. */
  | ({ readonly type: "end"; readonly id: number; readonly kills: number } & End);

/** Indices into the memory that a child shares with its worker. */
export const SHARED = { call: 0, stop: 1, length: 2 } as const;

/** Values of `SHARED.call` that are no index of a call. */
export const CALL = { idle: -2, loading: -1 } as const;

/** To a worker. */
export type WorkerRequest =
  | {
    readonly type: "open";
    readonly snapshot: Uint8Array | null;
    readonly memoryBytes: number;
    readonly shared: SharedArrayBuffer;
  }
  | { readonly type: "snapshot" }
  | { readonly type: "job"; readonly job: Job };

/** From a worker. After each `end` comes `rest`: ready for a job again, or worn and to be replaced. */
export type WorkerAnswer =
  | { readonly type: "ready"; readonly version: string }
  | { readonly type: "snapshot"; readonly bytes: Uint8Array<ArrayBuffer> }
  | ({ readonly type: "results" } & Results)
  | ({ readonly type: "end" } & End)
  | { readonly type: "rest"; readonly worn: boolean };

/** A line that says `message`. */
export function line(message: unknown, token = ""): Uint8Array<ArrayBuffer> {
  return new TextEncoder().encode(`${token}${JSON.stringify(message)}\n`);
}

/** Longest line that is kept; a longer one is dropped, since nothing of ours is. */
const LONGEST = 64 * 2 ** 20;

/** The lines of a byte stream. */
export async function* lines(
  stream: ReadableStream<Uint8Array<ArrayBuffer>>,
): AsyncGenerator<string> {
  let begun: string[] = [];
  let length = 0;
  for await (const text of stream.pipeThrough(new TextDecoderStream())) {
    const parts = text.split("\n");
    for (const part of parts.slice(0, -1)) {
      yield begun.join("") + part;
      [begun, length] = [[], 0];
    }
    begun.push(parts.at(-1)!);
    length += parts.at(-1)!.length;
    if (length > LONGEST) [begun, length] = [[], 0];
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
