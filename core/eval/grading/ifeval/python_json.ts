/**
 * Whether Python's `json.loads` accepts a text.
 *
 * It takes what JSON.parse takes, and `NaN`, `Infinity` and `-Infinity` where a value may stand.
 * Integers of more than 4300 digits are refused, a limit of Python's own.
 */

/** Strings, to be skipped, and the three words. */
const STRING_OR_WORD = /"(?:[^"\\]|\\.)*"|-?Infinity|NaN/gs;

const MOST_DIGITS = 4300;

/** Whether the text is one JSON value by Python's rules. */
export function isPythonJson(text: string): boolean {
  // Blanks around the stand-in, so that it joins nothing to a valid word.
  const plain = text.replace(STRING_OR_WORD, (found) => found.startsWith('"') ? found : " null ");
  try {
    JSON.parse(plain, (_, value, context?: { source?: string }) => {
      if (typeof value === "number") requireShort(context?.source);
      return value;
    });
    return true;
  } catch (error) {
    if (error instanceof SyntaxError) return false;
    throw error;
  }
}

function requireShort(source = ""): void {
  if (/^-?\d+$/.test(source) && source.replace("-", "").length > MOST_DIGITS) {
    throw new SyntaxError("too many digits");
  }
}
