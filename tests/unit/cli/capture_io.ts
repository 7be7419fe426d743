/**
 * An `Io` over memory instead of a process, for tests of everything above the streams.
 *
 * Nothing is a terminal unless said so; the clock only moves when a test moves it.
 */
import type { Invocation } from "../../../cli/output/document.ts";
import { DEFAULT_SETTINGS, Io, type Settings, type StreamName } from "../../../cli/output/io.ts";

/** A run of a command whose output nothing else depends on. */
export const INVOCATION: Invocation = {
  command: "score",
  startedAt: new Date(0),
  startedMs: 0,
  format: "jsonl",
  out: undefined,
  overwrite: false,
  config: {},
  origins: {},
};

/** Options of the pretended process. */
export interface CaptureOptions {
  readonly stdin?: string | Uint8Array;
  readonly terminals?: readonly StreamName[];
  readonly env?: Readonly<Record<string, string>>;
  readonly columns?: number;
  readonly settings?: Partial<Settings>;
  /** Fails every write to these streams, as a closed pipe does. */
  readonly closed?: readonly StreamName[];
  /** A clock in place of the one that `advance` moves. */
  readonly now?: () => number;
}

/** An `Io` and what was written through it. */
export interface Capture {
  readonly io: Io;
  stdout(): string;
  stderr(): string;
  /** Moves the clock. */
  advance(ms: number): void;
}

/** Builds an `Io` that captures. */
export function captureIo(options: CaptureOptions = {}): Capture {
  const { stdin = "", terminals = [], env = {}, closed = [] } = options;
  const bytes = typeof stdin === "string" ? new TextEncoder().encode(stdin) : stdin;
  const written = { stdout: "", stderr: "" };
  const decoder = new TextDecoder();
  let clock = 0;
  const io = new Io({
    write(stream, bytes) {
      if (closed.includes(stream)) throw new Deno.errors.BrokenPipe();
      written[stream] += decoder.decode(bytes);
    },
    stdin: () => ReadableStream.from([bytes]),
    isTerminal: (stream) => terminals.includes(stream),
    env: (name) => env[name],
    columns: () => options.columns,
    now: options.now ?? (() => clock),
  }, { ...DEFAULT_SETTINGS, ...options.settings });
  return {
    io,
    stdout: () => written.stdout,
    stderr: () => written.stderr,
    advance: (ms) => void (clock += ms),
  };
}
