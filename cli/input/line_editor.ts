/**
 * A line being typed: text, cursor and history, changed by keys. It neither reads nor draws.
 *
 * Positions are in characters as a reader counts them (grapheme clusters).
 */

/** State of the line after a key: it continues, is complete, or the input has ended. */
export type Outcome = "editing" | "submitted" | "ended";

/** Control sequences after ESC, and the actions they stand for. */
const SEQUENCES: Readonly<Record<string, keyof Actions>> = {
  ...{ "[A": "up", "[B": "down", "[C": "right", "[D": "left" },
  ...{ "[H": "home", "[F": "end", "[1~": "home", "[4~": "end", "[7~": "home", "[8~": "end" },
  ...{ OA: "up", OB: "down", OC: "right", OD: "left", OH: "home", OF: "end" },
  ...{ "[1;5C": "wordRight", "[1;5D": "wordLeft", "[1;3C": "wordRight", "[1;3D": "wordLeft" },
  ...{ "[3~": "delete", b: "wordLeft", f: "wordRight", d: "deleteWord" },
  ...{ "\x7f": "eraseWord", "\b": "eraseWord", "\r": "newLine", "\n": "newLine" },
};

/** The same for control characters. */
const CONTROLS: Readonly<Record<string, keyof Actions>> = {
  ...{ "\x01": "home", "\x02": "left", "\x05": "end", "\x06": "right" },
  ...{ "\b": "erase", "\x7f": "erase", "\n": "newLine", "\x0b": "eraseToEnd" },
  ...{ "\x0e": "down", "\x10": "up", "\x15": "eraseToStart", "\x17": "eraseWord" },
};

type Actions = Omit<LineEditor, "press" | "paste" | "clear" | "text" | "cursor" | "characters">;

const segmenter = new Intl.Segmenter();

/** Characters of a text; control characters other than line feeds are left out, tabs are spaces. */
function charactersOf(text: string): string[] {
  const plain = text.replace(/\r\n?/g, "\n").replaceAll("\t", "    ");
  // deno-lint-ignore no-control-regex -- they are what is left out
  const clean = plain.replace(/[\x00-\x09\x0b-\x1f\x7f-\x9f]/g, "");
  return Array.from(segmenter.segment(clean), ({ segment }) => segment);
}

/** The line and what keys do to it. */
export class LineEditor {
  characters: string[] = [];
  cursor = 0;
  /** Place in the history; its length is the line that is being typed. */
  #place: number;
  #typed = "";

  /** Lines of the history, the newest last. */
  constructor(private readonly history: readonly string[]) {
    this.#place = history.length;
  }

  get text(): string {
    return this.characters.join("");
  }

  /** Takes a key: a character, a control character, or ESC with its sequence. */
  press(key: string): Outcome {
    if (key === "\r") {
      // A backslash at the end continues the text on another line.
      if (this.characters[this.cursor - 1] !== "\\") return "submitted";
      this.erase();
      this.newLine();
    } else if (key === "\x04") {
      if (this.characters.length === 0) return "ended";
      this.delete();
    } else {
      const action = key.startsWith("\x1b") ? SEQUENCES[key.slice(1)] : CONTROLS[key];
      if (action !== undefined) this[action]();
      else if (!key.startsWith("\x1b")) this.paste(key);
    }
    return "editing";
  }

  /** Inserts a text of any length. */
  paste(text: string): void {
    // What is typed may combine with the character before it.
    const before = this.cursor > 0 ? 1 : 0;
    const [from, joined] = [this.cursor - before, this.characters[this.cursor - 1] ?? ""];
    const added = charactersOf(joined + text);
    this.characters.splice(from, before, ...added);
    this.cursor = from + added.length;
  }

  /** Empties the line; false when it was empty. */
  clear(): boolean {
    const wasEmpty = this.characters.length === 0;
    this.#set("");
    return !wasEmpty;
  }

  newLine(): void {
    this.paste("\n");
  }

  left(): void {
    this.cursor = Math.max(0, this.cursor - 1);
  }

  right(): void {
    this.cursor = Math.min(this.characters.length, this.cursor + 1);
  }

  home(): void {
    this.cursor = this.#start();
  }

  end(): void {
    this.cursor = this.#end();
  }

  wordLeft(): void {
    while (this.cursor > 0 && !this.#isWord(this.cursor - 1)) this.cursor--;
    while (this.cursor > 0 && this.#isWord(this.cursor - 1)) this.cursor--;
  }

  wordRight(): void {
    const { length } = this.characters;
    while (this.cursor < length && !this.#isWord(this.cursor)) this.cursor++;
    while (this.cursor < length && this.#isWord(this.cursor)) this.cursor++;
  }

  erase(): void {
    if (this.cursor > 0) this.characters.splice(--this.cursor, 1);
  }

  delete(): void {
    this.characters.splice(this.cursor, 1);
  }

  eraseWord(): void {
    this.#eraseFrom(() => this.wordLeft());
  }

  deleteWord(): void {
    const from = this.cursor;
    this.wordRight();
    this.characters.splice(from, this.cursor - from);
    this.cursor = from;
  }

  eraseToStart(): void {
    this.#eraseFrom(() => this.home());
  }

  eraseToEnd(): void {
    this.characters.splice(this.cursor, this.#end() - this.cursor);
  }

  /** The line above, or the message before. */
  up(): void {
    const start = this.#start();
    if (start > 0) return this.#moveTo(this.#start(start - 1), this.cursor - start);
    this.#recall(this.#place - 1);
  }

  /** The line below, or the message after. */
  down(): void {
    const end = this.#end();
    if (end < this.characters.length) return this.#moveTo(end + 1, this.cursor - this.#start());
    this.#recall(this.#place + 1);
  }

  #isWord(at: number): boolean {
    return /[\p{L}\p{N}_]/u.test(this.characters[at]!);
  }

  #start(from = this.cursor): number {
    return from === 0 ? 0 : this.characters.lastIndexOf("\n", from - 1) + 1;
  }

  #end(from = this.cursor): number {
    const end = this.characters.indexOf("\n", from);
    return end < 0 ? this.characters.length : end;
  }

  #moveTo(start: number, column: number): void {
    this.cursor = Math.min(start + column, this.#end(start));
  }

  #eraseFrom(move: () => void): void {
    const end = this.cursor;
    move();
    this.characters.splice(this.cursor, end - this.cursor);
  }

  #recall(place: number): void {
    if (place < 0 || place > this.history.length) return;
    if (this.#place === this.history.length) this.#typed = this.text;
    this.#place = place;
    this.#set(this.history[place] ?? this.#typed);
  }

  #set(text: string): void {
    this.characters = charactersOf(text);
    this.cursor = this.characters.length;
  }
}

/** Keys of what a terminal sends; an unfinished sequence is kept for the next piece. */
export class KeyReader {
  #rest = "";

  /** Keys, and pasted texts. */
  *read(piece: string): Generator<{ readonly key: string } | { readonly pasted: string }> {
    let text = this.#rest + piece;
    this.#rest = "";
    while (text !== "") {
      if (text.startsWith(PASTE_BEGINS)) {
        const end = text.indexOf(PASTE_ENDS);
        if (end < 0) return void (this.#rest = text);
        yield { pasted: text.slice(PASTE_BEGINS.length, end) };
        text = text.slice(end + PASTE_ENDS.length);
        continue;
      }
      const [key] = KEY.exec(text)!;
      if (UNFINISHED.test(key) && key.length === text.length) return void (this.#rest = key);
      yield { key };
      text = text.slice(key.length);
    }
  }
}

const PASTE_BEGINS = "\x1b[200~", PASTE_ENDS = "\x1b[201~";
// deno-lint-ignore no-control-regex -- they are what keys send
const KEY = /^(?:\x1b(?:\[[\d;]*[A-Za-z~]?|O[A-Za-z]?|[^])?|[^])/u;
// deno-lint-ignore no-control-regex -- they are what keys send
const UNFINISHED = /^\x1b(?:\[[\d;]*|O)?$/;
