/** The line editor of `chat`: keys, history, rows on the screen. */
import { assertEquals } from "@std/assert";
import { KeyReader, LineEditor } from "../../../cli/input/line_editor.ts";
import { layout } from "../../../cli/input/terminal_lines.ts";

/** The line after keys, with a bar where the cursor stands. */
function typed(keys: readonly string[], history: readonly string[] = []): string {
  const editor = new LineEditor(history);
  for (const key of keys) editor.press(key);
  const { characters, cursor } = editor;
  return `${characters.slice(0, cursor).join("")}|${characters.slice(cursor).join("")}`;
}

const [LEFT, HOME, END, WORD_LEFT, WORD_RIGHT] = ["\x1b[D", "\x1b[H", "\x1b[F", "\x1bb", "\x1bf"];
const [UP, DOWN] = ["\x1b[A", "\x1b[B"];

Deno.test("keys move the cursor, insert and erase", () => {
  const text = [..."one two"];
  assertEquals(typed([...text, LEFT!, LEFT!, "X"]), "one tX|wo");
  assertEquals(typed([...text, HOME!, "X"]), "X|one two");
  assertEquals(typed([...text, "\x01", END!, "X"]), "one twoX|");
  assertEquals(typed([...text, WORD_LEFT!, "X"]), "one X|two");
  assertEquals(typed([...text, "\x1b[1;5D", "\x1b[1;5D", "X"]), "X|one two");
  assertEquals(typed([...text, HOME!, WORD_RIGHT!, "X"]), "oneX| two");
  assertEquals(typed([...text, "\x7f", "\b"]), "one t|");
  assertEquals(typed([...text, HOME!, "\x1b[3~", "\x04"]), "|e two");
  assertEquals(typed([...text, "\x17"]), "one |");
  assertEquals(typed([...text, WORD_LEFT!, "\x15"]), "|two");
  assertEquals(typed([...text, WORD_LEFT!, "\x0b"]), "one |");
  assertEquals(typed([...text, HOME!, "\x1bd"]), "| two");
  assertEquals(typed([..."e\u0301a", LEFT!, "\x7f"]), "|a", "a combined letter is one character");
  assertEquals(typed(["\x1b[99~", "\x1bq", "\x00", "a"]), "a|", "unknown keys do nothing");
});

Deno.test("the arrows go through the history and back to what was being typed", () => {
  const history = ["first", "second"];
  assertEquals(typed([..."new", UP!], history), "second|");
  assertEquals(typed([..."new", UP!, UP!, UP!], history), "first|");
  assertEquals(typed([..."new", UP!, UP!, DOWN!, DOWN!, DOWN!], history), "new|");
});

Deno.test("a message has several lines, in which the arrows go up and down", () => {
  assertEquals(typed([..."ab", "\n", ..."cd"]), "ab\ncd|");
  assertEquals(typed([..."ab", "\x1b\r", ..."c"]), "ab\nc|");
  assertEquals(typed([..."ab\\", "\r", ..."c"]), "ab\nc|");
  assertEquals(typed([..."abc", "\n", ..."d", UP!], ["old"]), "a|bc\nd");
  assertEquals(typed([..."abc", "\n", ..."d", UP!, UP!], ["old"]), "old|");
  assertEquals(typed([..."abc", "\n", ..."d", UP!, DOWN!]), "abc\nd|");
});

Deno.test("Enter submits, Ctrl-D ends an empty line alone", () => {
  const editor = new LineEditor([]);
  assertEquals(editor.press("\x04"), "ended");
  assertEquals(editor.press("a"), "editing");
  assertEquals(editor.press("\x04"), "editing");
  assertEquals(editor.press("\r"), "submitted");
});

Deno.test("sequences that come in pieces are one key, and pasted lines one text", () => {
  const reader = new KeyReader();
  const read = (...pieces: string[]) => pieces.flatMap((piece) => [...reader.read(piece)]);
  assertEquals(read("a\x1b", "[", "1;5", "Cb"), [{ key: "a" }, { key: "\x1b[1;5C" }, { key: "b" }]);
  assertEquals(read("\x1b[200~one\ntw", "o\x1b[201~\r"), [{ pasted: "one\ntwo" }, { key: "\r" }]);
});

Deno.test("long lines and wide characters wrap, and the cursor stands where the next one goes", () => {
  const shown = (text: string, cursor: number) =>
    layout({ characters: [...text], cursor }, "> ", 8);
  assertEquals(shown("abcdefgh", 8), { rows: ["> abcdef", "  gh"], row: 1, column: 4 });
  assertEquals(shown("ab\ncd", 2), { rows: ["> ab", "  cd"], row: 0, column: 4 });
  assertEquals(shown("日本語字", 4), { rows: ["> 日本語", "  字"], row: 1, column: 4 });
});
