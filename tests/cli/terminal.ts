/**
 * Runs the program on a pseudo-terminal, by `script` of util-linux, and reads its screen.
 *
 * Keys are typed once the screen shows an expected text, never after a time.
 */
import { displayWidth, mayBreak } from "../../cli/output/wrap.ts";
import { environment, programLine, shellWords } from "./run.ts";

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
  /** Words that the terminal had to break, as it ends its lines at any character. */
  readonly brokenWords: readonly string[];
  /** Longest time without output, in ms, and the line that stood there. */
  readonly silence: Silence;
}

export interface Silence {
  readonly ms: number;
  readonly after: string;
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

/** Runs a bash script on a terminal, in which `parscale` is the program under test. */
export async function runShellOnTerminal(
  script: string,
  options: TerminalOptions = {},
): Promise<TerminalResult> {
  await using terminal = new Terminal(undefined, options, shellWords(script));
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
  #heardAt = performance.now();
  #silence: Silence = { ms: 0, after: "" };

  constructor(
    args: readonly string[] = [],
    { columns = 80, cwd, env }: TerminalOptions = {},
    line = programLine(args),
  ) {
    this.#columns = columns;
    const words = line.map((word) => `'${word.replaceAll("'", `'\\''`)}'`);
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
      this.#endSilence();
      this.#raw += decoder.decode(bytes, { stream: true });
      this.#changed.resolve();
      this.#changed = Promise.withResolvers();
    }
    this.#endSilence();
    this.#isOver = true;
    this.#changed.resolve();
  }

  #endSilence(): void {
    const now = performance.now(), ms = now - this.#heardAt;
    this.#heardAt = now;
    if (ms > this.#silence.ms) this.#silence = { ms, after: this.#raw.slice(-200) };
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
    return {
      code,
      raw: this.#raw,
      silence: this.#silence,
      ...renderScreen(this.#raw, this.#columns),
    };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (!this.#isOver) this.#child.kill("SIGKILL");
    await this.#finished;
    await this.#keys.close().catch(() => {});
    await this.#child.status;
  }
}

/** The lines that a terminal of `columns` columns shows after `raw`; colours are left out. */
export function screenOf(raw: string, columns: number): string[] {
  return renderScreen(raw, columns).screen;
}

/** Wide characters take two cells, the second of them empty. */
function renderScreen(
  raw: string,
  columns: number,
): { readonly screen: string[]; readonly brokenWords: readonly string[] } {
  const lines: string[][] = [[]];
  const continued = new Set<number>();
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
      const wide = displayWidth(part);
      if (column + wide > columns) {
        [row, column] = [row + 1, 0];
        continued.add(row);
      }
      const at = line();
      while (at.length < column) at.push(" ");
      if (wide === 0) at[Math.max(0, column - 1)] += part;
      for (let cell = 0; cell < wide; cell++) at[column++] = cell === 0 ? part : "";
    }
  }
  const rows = Array.from(lines, (cells) => (cells ?? []).map((cell) => cell ?? " ").join(""));
  const brokenWords = [...continued].flatMap((row) => {
    const [before, after] = [rows[row - 1]!, rows[row]!];
    const word = /\S*$/.exec(before)![0] + /^\S*/.exec(after)![0];
    // One that is longer than a line has to be broken.
    return mayBreak(before, after) || displayWidth(word) > columns ? [] : [word];
  });
  return { screen: rows.map((row) => row.trimEnd()), brokenWords };
}
