/**
 * Keeps control characters that come from data, file names, models or templates from a terminal, which
 * would act upon them: they could move the cursor, hide text, set the title or the clipboard.
 *
 * Results that go to a file or a pipe are left as they are.
 */

/** C0, DEL, C1, separators of lines, and the characters that reverse the direction of a text. */
// deno-lint-ignore no-control-regex -- they are what is looked for
const CONTROL = /[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]/g;

/** The same without line feeds and tabs. */
// deno-lint-ignore no-control-regex -- they are what is looked for
const CONTROL_IN_LINES = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]/g;

/** Escapes that may reach a terminal: our colours, and the removal of a line before it is redrawn. */
// deno-lint-ignore no-control-regex -- they are what is looked for
const OURS = /\r?\x1b\[2K|\x1b\[[\d;]{0,20}m|[\x00-\x08\x0b-\x1f\x7f-\x9f]/g;

/** A text on one line: every control character as an escape that is read, not acted upon. */
export function visible(text: string): string {
  return text.replace(CONTROL, escape);
}

/** A text of several lines. */
export function visibleLines(text: string): string {
  return text.replace(CONTROL_IN_LINES, escape);
}

/** The last wall before a terminal: lets pass what we write ourselves. */
export function guardTerminal(text: string): string {
  return text.replace(OURS, (found) => found.length > 1 ? found : escape(found));
}

/** A JSON text whose strings have no control characters left; JSON itself allows some. */
export function visibleJson(json: string): string {
  return json.replace(
    CONTROL_IN_LINES,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

function escape(character: string): string {
  if (character === "\n") return "\\n";
  if (character === "\t") return "\\t";
  if (character === "\r") return "\\r";
  const code = character.charCodeAt(0);
  return code < 0x100
    ? `\\x${code.toString(16).padStart(2, "0")}`
    : `\\u${code.toString(16).padStart(4, "0")}`;
}
