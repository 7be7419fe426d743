/**
 * Instructions about what a response contains, begins or ends with.
 *
 * A postscript need not stand at the start of a line or at the end of the text.
 */
import { pythonRegex, strip } from "../../python/text.ts";
import { checker, type Family } from "./checker.ts";

/** Spellings accepted for the two markers of the data set. */
const POSTSCRIPTS: Readonly<Record<string, string>> = {
  "P.P.S": "p\\.\\s?p\\.\\s?s",
  "P.S.": "p\\.\\s?s\\.",
};

/** `detectable_content:*`. */
export const content: Family = {
  number_placeholders: checker(
    { num_placeholders: "count" },
    (response, { num_placeholders: least }) => countPlaceholders(response) >= least,
  ),

  // The reference also matches the blanks before and the line after, which changes nothing.
  postscript: checker({ postscript_marker: "pattern" }, (response, { postscript_marker }) => {
    const marker = strip(postscript_marker);
    const pattern = POSTSCRIPTS[marker] ?? marker.toLowerCase();
    return pythonRegex(pattern, "m").test(response.toLowerCase());
  }),
};

/** Matches of `\[.*?\]`, without trying brackets that nothing closes. */
function countPlaceholders(response: string): number {
  return response.split("\n").reduce((sum, line) => {
    const closed = line.slice(0, line.lastIndexOf("]") + 1);
    return sum + (closed.match(/\[[^\]]*\]/g)?.length ?? 0);
  }, 0);
}

/** `combination:*`. */
export const combination: Family = {
  two_responses: checker({}, (response) => {
    const parts = response.split("******").map((part) => strip(part));
    if (parts.slice(1, -1).includes("")) return false;
    const [first, second, ...more] = parts.filter((part) => part !== "");
    return second !== undefined && more.length === 0 && first !== second;
  }),

  repeat_prompt: checker(
    { prompt_to_repeat: "text or nothing" },
    (response, { prompt_to_repeat: part }, { prompt = "" }) =>
      strip(response).toLowerCase().startsWith(strip(part ?? prompt).toLowerCase()),
  ),
};

/** `startend:*`. */
export const startEnd: Family = {
  end_checker: checker(
    { end_phrase: "text" },
    (response, { end_phrase: phrase }) =>
      strip(strip(response), '"').toLowerCase().endsWith(strip(phrase).toLowerCase()),
  ),

  quotation: checker({}, (response) => {
    const text = strip(response);
    return text.length > 1 && text.startsWith('"') && text.endsWith('"');
  }),
};

/** `punctuation:*`. */
export const punctuation: Family = { no_comma: checker({}, (response) => !response.includes(",")) };
