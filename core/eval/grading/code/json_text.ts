/**
 * Takes JSON apart without reading its numbers.
 *
 * The text may hold Python's NaN and Infinity. Inputs of the tests go to Python as the text they are:
 * read here, 1.0 would become 1 and long integers would lose digits.
 */

/** The values of an object's keys, as text; undefined for any other text. */
export function objectTexts(text: string): Map<string, string> | undefined {
  const parts = pieces(text, "{", "}");
  return parts && new Map(
    parts.map((part) => {
      const end = stringEnd(part, 0);
      return [JSON.parse(part.slice(0, end)), part.slice(part.indexOf(":", end) + 1).trim()];
    }),
  );
}

/** The elements of an array, as text; undefined for any other text. */
export function arrayTexts(text: string): string[] | undefined {
  return pieces(text, "[", "]");
}

function pieces(text: string, open: string, close: string): string[] | undefined {
  const whole = text.trim();
  if (!whole.startsWith(open) || !whole.endsWith(close)) return undefined;
  const parts: string[] = [];
  let depth = 0;
  let start = 1;
  for (let at = 1; at < whole.length - 1; at++) {
    const character = whole[at]!;
    if (character === '"') at = stringEnd(whole, at) - 1;
    else if (character === "[" || character === "{") depth++;
    else if (character === "]" || character === "}") depth--;
    else if (character === "," && depth === 0) {
      parts.push(whole.slice(start, at).trim());
      start = at + 1;
    }
  }
  const last = whole.slice(start, -1).trim();
  if (last !== "" || parts.length > 0) parts.push(last);
  return depth === 0 ? parts : undefined;
}

/** Returns the end of the string that starts at `at`. */
function stringEnd(text: string, at: number): number {
  for (at++; at < text.length && text[at] !== '"'; at++) {
    if (text[at] === "\\") at++;
  }
  return at + 1;
}
