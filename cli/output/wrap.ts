/** Width of text on a terminal, and its breaks at words. */

/** Columns a text takes on screen: wide East Asian characters and emoji count twice. */
export function displayWidth(text: string): number {
  if (/^[ -~]*$/.test(text)) return text.length; // most text by far
  let width = 0;
  for (const character of text) {
    if (/[\p{Mark}\p{Format}]/u.test(character)) continue;
    const wide = /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60]/
      .test(character) || /\p{Emoji_Presentation}/u.test(character);
    width += wide ? 2 : 1;
  }
  return width;
}

/** The longest prefix of a text that takes at most `columns` columns. */
export function cutToWidth(text: string, columns: number): string {
  let cut = "";
  for (const character of text) {
    if (displayWidth(cut + character) > columns) break;
    cut += character;
  }
  return cut;
}

/** A text of at most `columns` columns; a wider one is cut, with `…` at its end. */
export function shorten(text: string, columns: number): string {
  return displayWidth(text) <= columns ? text : `${cutToWidth(text, columns - 1)}…`;
}

/** ANSI codes, which have no width. */
// deno-lint-ignore no-control-regex -- they are what is looked for
const COLOR = /\x1b\[[\d;]*m/g;

/** Characters of scripts without spaces between words: a line may end after each of them. */
const UNSPACED = String
  .raw`\p{RGI_Emoji}|[\p{scx=Han}\p{scx=Hiragana}\p{scx=Katakana}\p{scx=Hangul}]`;

/** Patterns that know these scripts; they take as long to compile as a tenth of a start. */
const compile = () => ({
  parts: new RegExp(
    String
      .raw`[ \t]+|(?:${UNSPACED})[\p{Mark}\p{Pe}\p{Pf}、。！，．：；？]*|(?:(?!${UNSPACED})[^ \t])+`,
    "gv",
  ),
  behind: new RegExp(`(?:[ \\t]|${UNSPACED})$`, "v"),
  before: new RegExp(`^(?:[ \\t]|${UNSPACED})`, "v"),
});
let compiled: ReturnType<typeof compile> | undefined;
const unspaced = () => compiled ??= compile();

/** Spaces, or what stays whole: one such character with the marks that belong to it, or a word. */
function partsOf(line: string) {
  const isLatin = /^[\0-\x7f\xc0-\u024f\u2010-\u2027]*$/.test(line);
  return line.matchAll(isLatin ? /[ \t]+|[^ \t]+/g : unspaced().parts);
}

/** Returns the start of the last part of a line, with the spaces before it: more of it may follow. */
function lastPart(line: string): number {
  let start = 0, spaces = false;
  for (const { 0: part, index } of partsOf(line)) {
    if (!spaces) start = index;
    spaces = part.trim() === "";
  }
  return start;
}

/** Returns whether a line may end between two texts that follow each other. */
export function mayBreak(before: string, after: string): boolean {
  return before === "" || unspaced().behind.test(before) || unspaced().before.test(after);
}

const TAB = 8;

/**
 * Breaks text at words as it comes. Lines that fit stay as they are; the rest of a line that is
 * broken has its indentation, and a word that is wider than a line stays whole. Each word is returned once it has ended.
 */
export class WordWrapper {
  #held = "";
  #column = 0;
  #indent = "";

  /** `width` is the number of columns; Infinity breaks nothing. */
  constructor(private readonly width: number) {}

  /** Returns what can be shown once `text` has come. */
  add(text: string): string {
    const [first, ...lines] = (this.#held + text).split("\n");
    const last = lines.pop();
    let shown = "";
    const whole = (line: string) => {
      shown += this.#line(line) + "\n";
      [this.#column, this.#indent] = [0, ""];
    };
    if (last !== undefined) [first!, ...lines].forEach(whole);
    const open = last ?? first!;
    const end = lastPart(open);
    this.#held = open.slice(end);
    return shown + this.#line(open.slice(0, end));
  }

  /** Returns what was held back. */
  end(): string {
    const rest = this.#line(this.#held);
    this.#held = "";
    return rest;
  }

  #line(line: string): string {
    let shown = "", spaces = "";
    for (const [part] of partsOf(line)) {
      if (part.trim() === "") {
        spaces = part;
        if (this.#column === 0 && part.length < this.width * 0.75) this.#indent = part;
        continue;
      }
      const [wide, isFirst] = [displayWidth(part.replace(COLOR, "")), this.#column === 0];
      const behind = columnAfter(this.#column, spaces);
      const breaks = !isFirst && behind + wide > this.width;
      shown += (breaks ? `\n${this.#indent}` : spaces) + part;
      this.#column = (breaks ? columnAfter(0, this.#indent) : behind) + wide;
      spaces = "";
    }
    return shown + spaces;
  }
}

function columnAfter(column: number, spaces: string): number {
  for (const space of spaces) column += space === "\t" ? TAB - column % TAB : 1;
  return column;
}

/** Commands: between backquotes, or from the program's name after a colon to the end of a line. */
const COMMAND = new RegExp(
  String.raw`[^\s\x60]*\x60[^\x60]+\x60[^\s\x60]*|(?<=^|:(?:${COLOR.source})? )parscale .*$`,
  "g",
);

/** Stands for a blank where a line may not end: Unicode has no such character. */
const GLUE = "\ufdd0";

/** Glues the commands of a line that fit a line of their own. */
function withWholeCommands(line: string, width: number): string {
  if (displayWidth(line.replace(COLOR, "")) <= width) return line;
  const [indent] = /^[ \t]*/.exec(line)!;
  return line.replace(COMMAND, (command) => {
    const fits = columnAfter(0, indent) + displayWidth(command.replace(COLOR, "")) <= width;
    return fits ? command.replaceAll(" ", GLUE) : command;
  });
}

/** Breaks the lines of a text that do not fit at words, but not in commands; see `WordWrapper`. */
export function wrapLines(text: string, width: number): string {
  const wrapper = new WordWrapper(width);
  const lines = text.split("\n").map((line) => withWholeCommands(line, width));
  return (wrapper.add(lines.join("\n")) + wrapper.end()).replaceAll(GLUE, " ");
}

/** Fills lines with the words of a text; all lines are indented alike. */
export function wrap(text: string, width: number, indent = ""): string {
  return wrapLines(indent + text.split(/\s+/).join(" "), width);
}
