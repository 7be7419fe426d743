/**
 * Runs the program on a pseudo-terminal, by `script` of util-linux, and reads its screen.
 *
 * Keys are typed once the screen shows an expected text, never after a time.
 */
import { environment, programLine } from "./run.ts";

/** A terminal and what runs on it. */
export interface TerminalOptions {
  readonly columns?: number;
  readonly cwd?: string;
  readonly env?: Readonly<Record<string, string>>;
}

/** Result of the program. */
export interface TerminalResult {
  readonly code: number;
  /** Everything that was written, control sequences included. */
  readonly raw: string;
  /** Lines as they stand on the screen at the end, without trailing spaces. */
  readonly screen: readonly string[];
}

/** Returns whether the machine has a `script` that takes a command and returns its exit code. */
export const HAS_TERMINALS = await (async () => {
  try {
    const { stdout } = await new Deno.Command("script", { args: ["--version"] }).output();
    return new TextDecoder().decode(stdout).includes("util-linux");
  } catch {
    return false;
  }
})();

/** Runs `parscale` with `args` on a terminal to its end. */
export async function runOnTerminal(
  args: readonly string[],
  options: TerminalOptions = {},
): Promise<TerminalResult> {
  await using terminal = new Terminal(args, options);
  return await terminal.end();
}

/** A program on a terminal, for tests that type. */
export class Terminal implements AsyncDisposable {
  readonly #child: Deno.ChildProcess;
  readonly #keys: WritableStreamDefaultWriter<Uint8Array>;
  readonly #finished: Promise<void>;
  readonly #columns: number;
  #raw = "";
  #changed = Promise.withResolvers<void>();
  #isOver = false;

  constructor(args: readonly string[], { columns = 80, cwd, env }: TerminalOptions = {}) {
    this.#columns = columns;
    const words = programLine(args).map((word) => `'${word.replaceAll("'", `'\\''`)}'`);
    this.#child = new Deno.Command("script", {
      args: ["-qec", `stty cols ${columns} rows 30; exec ${words.join(" ")}`, "/dev/null"],
      ...(cwd !== undefined && { cwd }),
      env: environment({ TERM: "xterm-256color", ...env }),
      clearEnv: true,
      stdin: "piped",
      stdout: "piped",
      stderr: "inherit",
    }).spawn();
    this.#keys = this.#child.stdin.getWriter();
    this.#finished = this.#read();
  }

  async #read(): Promise<void> {
    const decoder = new TextDecoder();
    for await (const bytes of this.#child.stdout) {
      this.#raw += decoder.decode(bytes, { stream: true });
      this.#changed.resolve();
      this.#changed = Promise.withResolvers();
    }
    this.#isOver = true;
    this.#changed.resolve();
  }

  /** Lines of the screen now. */
  get screen(): string[] {
    return screenOf(this.#raw, this.#columns);
  }

  /** Presses keys. */
  async type(keys: string): Promise<void> {
    await this.#keys.write(new TextEncoder().encode(keys));
  }

  /** Waits until the screen shows what `shows` looks for. */
  async until(shows: string | ((screen: string) => boolean)): Promise<void> {
    const test = typeof shows === "string" ? (text: string) => text.includes(shows) : shows;
    for (;;) {
      const { promise } = this.#changed;
      if (test(this.screen.join("\n"))) return;
      if (this.#isOver) throw new Error(`ended without ${shows}:\n${this.screen.join("\n")}`);
      await promise;
    }
  }

  /** Waits for the end of the program. */
  async end(): Promise<TerminalResult> {
    await this.#finished;
    const { code } = await this.#child.status;
    return { code, raw: this.#raw, screen: this.screen };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (!this.#isOver) this.#child.kill("SIGKILL");
    await this.#finished;
    await this.#keys.close().catch(() => {});
    await this.#child.status;
  }
}

/** The lines that a terminal of so many columns shows after `raw`; colours are left out. */
export function screenOf(raw: string, columns: number): string[] {
  const lines: string[][] = [[]];
  let row = 0, column = 0;
  const line = () => lines[row] ??= [];
  // deno-lint-ignore no-control-regex -- they are what a terminal reads
  for (const [part, count, action] of raw.matchAll(/\x1b\[\??([\d;]*)([a-zA-Z])|[^]/gu)) {
    const number = Number(count) || 1;
    if (part === "\r") column = 0;
    else if (part === "\b") column = Math.max(0, column - 1);
    else if (part === "\n") {
      row++;
      line();
    } else if (action === "A") row = Math.max(0, row - number);
    else if (action === "B") row += number;
    else if (action === "C") column += number;
    else if (action === "D") column = Math.max(0, column - number);
    else if (action === "G") column = number - 1;
    else if (action === "K") {
      line().splice(count === "2" ? 0 : column);
    } else if (action === "J") {
      line().splice(column);
      lines.splice(row + 1);
    } else if (action === undefined && part >= " ") {
      if (column >= columns) [row, column] = [row + 1, 0];
      const at = line();
      while (at.length < column) at.push(" ");
      at[column++] = part;
    }
  }
  return Array.from(lines, (cells) => (cells ?? []).map((cell) => cell ?? " ").join("").trimEnd());
}
