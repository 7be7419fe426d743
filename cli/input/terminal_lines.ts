/**
 * Lines typed on a terminal, with editing, a history and several rows.
 *
 * The terminal does not echo while this is open: what is typed while the program writes waits for the
 * next prompt.
 */
import { PLATFORM } from "../../core/base/platform/mod.ts";
import { visible } from "../output/clean.ts";
import type { Io } from "../output/io.ts";
import { displayWidth } from "../output/wrap.ts";
import { KeyReader, LineEditor } from "./line_editor.ts";

const CONTROL_C = "\x03", CONTROL_L = "\x0c";
/** The terminal marks pasted text, so that its line feeds end no message. */
const MARKS_PASTE = "\x1b[?2004h", NO_MARKS = "\x1b[?2004l";

/** The open terminal. */
export class TerminalLines implements Disposable {
  readonly #keys: AsyncGenerator<{ readonly key: string } | { readonly pasted: string }>;
  #editor: LineEditor | undefined;
  /** Rows between the first row of the prompt and the cursor. */
  #cursorRow = 0;

  /** Adds every line to `history`; `onInterrupt` hears of Ctrl-C where it comes as a key. */
  constructor(
    private readonly io: Io,
    private readonly prompt: string,
    private readonly history: string[],
    private readonly onInterrupt: () => void,
  ) {
    setRaw(true);
    this.#put(MARKS_PASTE);
    this.#keys = this.#pump();
  }

  /** Reads a line; undefined at the end of input. */
  async read(): Promise<string | undefined> {
    const editor = this.#editor = new LineEditor(this.history);
    this.#cursorRow = 0;
    this.#draw();
    try {
      for (;;) {
        const { done, value } = await this.#keys.next();
        if (done) return undefined;
        if ("pasted" in value) editor.paste(value.pasted);
        else if (value.key === CONTROL_L) {
          this.#put("\x1b[2J\x1b[H");
          this.#cursorRow = 0;
        } else {
          const outcome = editor.press(value.key);
          if (outcome === "ended") return undefined;
          if (outcome === "submitted") break;
        }
        this.#draw();
      }
      editor.cursor = editor.characters.length;
      this.#draw();
      if (editor.text.trim() !== "" && this.history.at(-1) !== editor.text) {
        this.history.push(editor.text);
      }
      return editor.text;
    } finally {
      this.#editor = undefined;
      this.#put("\r\n");
    }
  }

  /** Empties the line that is being typed; false when there is nothing to empty. */
  clear(): boolean {
    if (!this.#editor?.clear()) return false;
    this.#draw();
    return true;
  }

  [Symbol.dispose](): void {
    this.#put(NO_MARKS);
    setRaw(false);
  }

  async *#pump() {
    const reader = new KeyReader();
    const decoder = new TextDecoder();
    for await (const bytes of this.io.system.stdin()) {
      for (const one of reader.read(decoder.decode(bytes, { stream: true }))) {
        if ("key" in one && one.key === CONTROL_C) this.onInterrupt();
        else yield one;
      }
    }
  }

  /** Writes control sequences of our own; typed text in them is clean. */
  #put(text: string): void {
    this.io.system.write("stdout", new TextEncoder().encode(text));
  }

  #draw(): void {
    const { rows, row, column } = layout(this.#editor!, this.prompt, this.io.width() - 1);
    const up = this.#cursorRow > 0 ? `\x1b[${this.#cursorRow}A` : "";
    const back = rows.length - 1 - row;
    this.#put(
      `${up}\r\x1b[J${rows.join("\r\n")}${back > 0 ? `\x1b[${back}A` : ""}\r` +
        (column > 0 ? `\x1b[${column}C` : ""),
    );
    this.#cursorRow = row;
  }
}

/** Rows of the prompt with the line behind it, and where the cursor stands. */
export function layout(
  { characters, cursor }: Pick<LineEditor, "characters" | "cursor">,
  prompt: string,
  width: number,
): { readonly rows: readonly string[]; readonly row: number; readonly column: number } {
  const indent = " ".repeat(prompt.length);
  const rows = [prompt];
  let used = prompt.length, row = 0, column = used;
  const next = () => {
    rows.push(indent);
    used = indent.length;
  };
  for (let i = 0; i <= characters.length; i++) {
    const character = characters[i] ?? "";
    const isBreak = character === "\n";
    const shown = isBreak ? "" : visible(character);
    if (used + displayWidth(shown) > width) next();
    if (i === cursor) [row, column] = [rows.length - 1, used];
    rows[rows.length - 1] += shown;
    used += displayWidth(shown);
    if (isBreak) next();
  }
  return { rows, row, column };
}

/** Without echo and lines; Ctrl-C stays a signal where the system has that. */
function setRaw(raw: boolean): void {
  if (raw && PLATFORM.name !== "windows") Deno.stdin.setRaw(true, { cbreak: true });
  else Deno.stdin.setRaw(raw);
}
