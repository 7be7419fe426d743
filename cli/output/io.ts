/**
 * The one way a command touches its streams, environment and clock: no code calls `console.log`. Writes are
 * synchronous, so that a row is out before the next is computed, and a reader that has gone shows at once,
 * as `ClosedPipeError`, which `main` turns into a quiet end. A gone stderr is ignored.
 */
import { DataError, UsageError } from "../../core/base/errors.ts";
import { writeAllSync } from "../../core/base/write_all.ts";
import { guardTerminal, visible, visibleJson, visibleLines } from "./clean.ts";
import { wrapLines } from "./wrap.ts";
import { isSystemError, writeError } from "./write_error.ts";
import { type ColorMode, type Palette, palette, wantsColor } from "./color.ts";

/** The streams of a process. */
export type StreamName = "stdin" | "stdout" | "stderr";

/** The world outside: replaced as a whole in tests. */
export interface System {
  /** Writes all bytes or throws. */
  write(stream: "stdout" | "stderr", bytes: Uint8Array): void;
  stdin(): ReadableStream<Uint8Array>;
  isTerminal(stream: StreamName): boolean;
  env(name: string): string | undefined;
  /** Columns of the terminal; undefined where there is none. */
  columns(): number | undefined;
  /** Milliseconds from a clock that never jumps. */
  now(): number;
}

/** Settings of all output, from the common flags. */
export interface Settings {
  readonly color: ColorMode;
  readonly quiet: number;
  readonly verbose: number;
  readonly progress: boolean;
  /** True if rows go to stdout while they are computed. */
  readonly streamsRows?: boolean;
  /** True if notes and warnings are JSON lines. */
  readonly jsonNotes?: boolean;
}

/** Settings before any flag is read. */
export const DEFAULT_SETTINGS: Settings = { color: "auto", quiet: 0, verbose: 0, progress: true };

/** Input was to come from a terminal: the caller shows short help instead of waiting in silence. */
export class MissingInputError extends UsageError {}

/** The reader of a result has gone; not an error, the program ends quietly. */
export class ClosedPipeError extends Error {}

const encoder = new TextEncoder();
/** Longest line and longest text that are read, in characters. */
const MAX_LINE = 32 << 20, MAX_TEXT = 256 << 20;

/** Input at a path as messages call it; `-` is stdin. */
export function inputName(path: string): string {
  return path === "-" ? "stdin" : `"${path}"`;
}

function tooLong(path: string, what: string, limit: number): DataError {
  return new DataError(`${what} of ${inputName(path)} is longer than ${limit} characters`);
}

const CLEAR_LINE = "\r\x1b[2K";

/** Streams, environment and settings of one invocation. */
export class Io {
  #live = "";

  /**
   * Usually built once by the entry point; `with` derives the others. `interruption` is aborted by the first
   * ending signal where the command asked to save; see `main`.
   */
  constructor(
    readonly system: System,
    readonly settings: Settings = DEFAULT_SETTINGS,
    readonly interruption: AbortSignal = new AbortController().signal,
    private readonly seen: Set<string> = new Set(),
  ) {}

  /** The same world under other settings. */
  with(settings: Settings, interruption: AbortSignal = this.interruption): Io {
    return new Io(this.system, settings, interruption, this.seen);
  }

  /** Value of an environment variable. */
  readonly env = (name: string): string | undefined => this.system.env(name);

  /** Returns whether the stream is a terminal. */
  isTerminal(stream: StreamName): boolean {
    return this.system.isTerminal(stream);
  }

  /** Columns for text meant for reading: the terminal's, 80 elsewhere, never below 40. */
  width(): number {
    return Math.max(40, this.system.columns() ?? 80);
  }

  /** Returns whether text on the stream is coloured. */
  isColored(stream: "stdout" | "stderr"): boolean {
    return wantsColor(this.settings.color, this.isTerminal(stream), this.env);
  }

  /** Colours of a stream. */
  palette(stream: "stdout" | "stderr"): Palette {
    return palette(this.isColored(stream));
  }

  /** Writes result text to stdout as it is; silent under `-q -q`. */
  write(text: string): void {
    if (this.settings.quiet < 2) this.#emit("stdout", text);
  }

  /** Writes text for reading to stdout, which a terminal shows with lines that end at words. */
  say(text: string): void {
    this.write(this.#fitted("stdout", text));
  }

  /** Writes to stderr: errors only, since no setting silences it. */
  writeError(text: string): void {
    this.#emit("stderr", this.#fitted("stderr", text));
  }

  #fitted(stream: "stdout" | "stderr", text: string): string {
    return this.isTerminal(stream) ? wrapLines(text, this.width()) : text;
  }

  /** Says what will happen and how to silence it; the same message is given once. */
  warn(message: string, hint?: string): void {
    if (this.settings.quiet > 0 || this.seen.has(message)) return;
    this.seen.add(message);
    if (this.settings.jsonNotes) return this.record({ warning: message, hint });
    const paint = this.palette("stderr");
    const more = hint === undefined ? "" : `\n${paint.hint("hint:")} ${visibleLines(hint)}`;
    this.writeError(`${paint.warning("warning:")} ${visibleLines(message)}${more}\n`);
  }

  /** A line on stderr for the reader's comfort; silent under `-q`. */
  note(message: string): void {
    if (this.settings.jsonNotes) this.record({ note: message });
    else if (this.settings.quiet === 0) this.writeError(`${visibleLines(message)}\n`);
  }

  /** A line on stderr for programs, with its time; silent under `-q`. */
  record(fields: object): void {
    if (this.settings.quiet > 0) return;
    const line = JSON.stringify({ time: new Date().toISOString(), ...fields });
    this.#emit("stderr", `${visibleJson(line)}\n`);
  }

  /** A note that is given once, however often the same thing happens. */
  noteOnce(message: string): void {
    if (this.seen.has(message)) return;
    this.seen.add(message);
    this.note(message);
  }

  /** A line on stderr under `-v`. */
  detail(message: string): void {
    if (this.settings.verbose > 0) this.note(message);
  }

  /** Shows a line that the next one replaces; for progress on a terminal. Empty removes it. */
  redraw(line: string): void {
    const shown = visible(line);
    this.#put("stderr", (this.#live === "" ? "" : CLEAR_LINE) + shown);
    this.#live = shown;
  }

  /** Lines of the file at `path`, or of stdin for `-`, without their ends. */
  async *readLines(path = "-"): AsyncGenerator<string> {
    let begun: string[] = []; // pieces of a line that reaches beyond its chunk
    let line = 1, length = 0;
    const requireShort = (more: number) => {
      if ((length += more) > MAX_LINE) throw tooLong(path, `line ${line}`, MAX_LINE);
    };
    for await (const text of this.#decode(path)) {
      let start = 0;
      for (let end; (end = text.indexOf("\n", start)) >= 0; start = end + 1) {
        requireShort(end - start);
        begun.push(text.slice(start, end));
        yield begun.join("").replace(/\r$/, "");
        begun = [];
        length = 0;
        line++;
      }
      requireShort(text.length - start);
      if (start < text.length) begun.push(text.slice(start));
    }
    if (begun.length > 0) yield begun.join("").replace(/\r$/, "");
  }

  /** Whole text of the file at `path`, or of stdin for `-`. */
  async readText(path = "-"): Promise<string> {
    const parts: string[] = [];
    let length = 0;
    for await (const part of this.#decode(path)) {
      if ((length += part.length) > MAX_TEXT) throw tooLong(path, "the text", MAX_TEXT);
      parts.push(part);
    }
    return parts.join("");
  }

  /** Throws unless the file at `path` can be read; stdin is left alone. */
  async requireFile(path: string): Promise<void> {
    if (path === "-") return;
    for await (const _ of this.#decode(path)) return;
  }

  /** Throws where stdin is a terminal; for those who read its bytes themselves. */
  requireInput(): void {
    if (!this.isTerminal("stdin")) return;
    throw new MissingInputError("no input: stdin is a terminal");
  }

  async *#decode(path: string): AsyncGenerator<string> {
    const name = inputName(path);
    if (path === "-") this.requireInput();
    const { withoutArchives } = await import("../../core/data/archives.ts");
    try {
      if (path !== "-" && (await Deno.stat(path)).isSocket) {
        throw new DataError(`${name} is a socket, not a file`);
      }
      const bytes = path === "-"
        ? this.system.stdin()
        : (await this.#untilInterrupted(Deno.open(path))).readable;
      const text = withoutArchives(this.#chunks(bytes), name, path === "-" ? {} : { path });
      // The cast bridges a difference between two library versions of the same stream type.
      const decoder = new TextDecoderStream("utf-8", { fatal: true });
      yield* ReadableStream.from(text).pipeThrough(
        decoder as ReadableWritablePair<string, Uint8Array>,
      );
    } catch (error) {
      if (error instanceof Deno.errors.NotCapable) throw error;
      if (error instanceof TypeError) {
        throw new DataError(`${name} is not valid UTF-8`);
      }
      // By code: on Windows some of these errors have no class of their own.
      const { code } = error as { code?: string };
      if (code === "ENOENT") throw new DataError(`no such file: ${name}`);
      if (code === "EISDIR") {
        throw new DataError(`${name} is a folder, not a file`);
      }
      throw error;
    }
  }

  async *#chunks(bytes: ReadableStream<Uint8Array>): AsyncGenerator<Uint8Array> {
    const reader = bytes.getReader();
    try {
      for (let next; !(next = await this.#untilInterrupted(reader.read())).done;) yield next.value;
    } finally {
      await reader.cancel();
    }
  }

  /** Waits for input, such as a pipe without a writer, until a signal comes. */
  async #untilInterrupted<T>(input: Promise<T>): Promise<T> {
    const { promise, reject } = Promise.withResolvers<never>();
    const stop = () => reject(this.interruption.reason);
    this.interruption.addEventListener("abort", stop);
    try {
      this.interruption.throwIfAborted();
      return await Promise.race([input, promise]);
    } finally {
      this.interruption.removeEventListener("abort", stop);
    }
  }

  /** Keeps the live line below what is written. */
  #emit(stream: "stdout" | "stderr", text: string): void {
    const live = this.#live;
    if (live !== "") this.redraw("");
    this.#put(stream, text);
    if (live !== "" && text.endsWith("\n")) this.redraw(live);
  }

  #put(stream: "stdout" | "stderr", text: string): void {
    if (text === "") return;
    try {
      const shown = this.isTerminal(stream) ? guardTerminal(text) : text;
      this.system.write(stream, encoder.encode(shown));
    } catch (error) {
      const isClosed = error instanceof Deno.errors.BrokenPipe;
      if (stream === "stderr" && (isClosed || isSystemError(error))) return;
      if (!isClosed) throw writeError(stream, error);
      throw new ClosedPipeError("stdout was closed", { cause: error });
    }
  }
}

/** The process's own streams, environment and clock. */
export function processSystem(): System {
  const streams = { stdin: Deno.stdin, stdout: Deno.stdout, stderr: Deno.stderr };
  return {
    write: (stream, bytes) => writeAllSync(streams[stream], bytes),
    stdin: () => Deno.stdin.readable,
    isTerminal: (stream) => streams[stream].isTerminal(),
    env(name) {
      try {
        return Deno.env.get(name);
      } catch (error) {
        // A build without this permission has no environment; it can still report its errors.
        if (error instanceof Deno.errors.NotCapable) return undefined;
        throw error;
      }
    },
    columns() {
      try {
        // Some pseudo-terminals report a width of zero.
        return Deno.consoleSize().columns || undefined;
      } catch {
        return undefined;
      }
    },
    now: () => performance.now(),
  };
}
