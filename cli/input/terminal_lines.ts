/**
 * Messages typed on a terminal. Node's line editor has the keys and the history; this adds messages of
 * several lines: one that ends with a backslash continues, and so does one that was pasted.
 */
import process from "node:process";
import { createInterface, type Interface } from "node:readline";
import { Writable } from "node:stream";
import type { Io } from "../output/io.ts";

/** Lines that the arrow keys go through. */
export const HISTORY_LINES = 1000;

/** Time within which the rest of a pasted text arrives. */
const PASTE_MS = 20;

/** The open terminal. What is typed while no message is read is not shown until the next one is. */
export class TerminalLines implements Disposable {
  readonly #editor: Interface;
  /** Messages that were complete before they were asked for. */
  readonly #messages: string[] = [];
  /** Lines of the message under way before the one that is being typed. */
  #lines: string[] = [];
  #timer: ReturnType<typeof setTimeout> | undefined;
  #isEnded = false;
  #reader: PromiseWithResolvers<string | undefined> | undefined;

  /** Every line is added to `history`, the newest last; `onInterrupt` is called at Ctrl-C. */
  constructor(
    private readonly io: Io,
    private readonly prompt: string,
    private readonly history: string[],
    onInterrupt: () => void,
  ) {
    const output = new Writable({
      write: (bytes, _encoding, done) => {
        if (this.#reader) io.system.write("stdout", bytes);
        done();
      },
    });
    this.#editor = createInterface({
      input: process.stdin,
      output: Object.assign(output, { columns: io.width() }),
      terminal: true,
      history: history.toReversed(),
      historySize: HISTORY_LINES,
      removeHistoryDuplicates: true,
    });
    this.#editor.on("line", (line) => this.#take(line));
    this.#editor.on("SIGINT", onInterrupt);
    this.#editor.on("close", () => {
      this.#isEnded = true;
      if (this.#reader) this.#write("\n");
      this.#answer();
    });
  }

  /** Reads a message; undefined at the end of input. */
  async read(): Promise<string | undefined> {
    this.#reader = Promise.withResolvers();
    if (this.#messages.length > 0) this.#write(`${this.prompt}${this.#messages[0]}\n`);
    else this.#show(this.prompt);
    this.#answer();
    try {
      return await this.#reader.promise;
    } finally {
      this.#reader = undefined;
    }
  }

  /** Empties the message that is being typed; false when there is nothing to empty. */
  clear(): boolean {
    if (this.#editor.line === "" && this.#lines.length === 0) return false;
    this.#lines = [];
    this.#editor.write(null, { ctrl: true, name: "e" });
    this.#editor.write(null, { ctrl: true, name: "u" });
    this.#show(this.prompt);
    return true;
  }

  [Symbol.dispose](): void {
    clearTimeout(this.#timer);
    this.#editor.close();
  }

  #take(line: string): void {
    const continues = line.endsWith("\\");
    if (line.trim() !== "" && this.history.at(-1) !== line) this.history.push(line);
    this.#lines.push(continues ? line.slice(0, -1) : line);
    this.#show(" ".repeat(this.prompt.length));
    clearTimeout(this.#timer);
    // Pasted lines arrive together, the last one without its end.
    if (!continues) this.#timer = setTimeout(() => this.#submit(), PASTE_MS);
  }

  #submit(): void {
    if (this.#editor.line !== "") return;
    this.#messages.push(this.#lines.join("\n"));
    this.#lines = [];
    if (this.#reader) this.#write("\r\x1b[J");
    this.#answer();
  }

  #answer(): void {
    if (this.#messages.length > 0) this.#reader?.resolve(this.#messages.shift());
    else if (this.#isEnded) this.#reader?.resolve(undefined);
  }

  #show(prompt: string): void {
    this.#editor.setPrompt(prompt);
    this.#editor.prompt(true);
  }

  #write(text: string): void {
    this.io.system.write("stdout", new TextEncoder().encode(text));
  }
}
