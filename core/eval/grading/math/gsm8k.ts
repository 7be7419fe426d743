/**
 * GSM8K: the number an answer ends in, by two filters, and whether it is the right one.
 *
 * The gold answer stays a whole worked solution, and only the comparison cuts it down; and in the
 * chain-of-thought format one more character must follow the number, so that "The answer is 70000"
 * yields 7000.
 */
import { strip } from "../../python/text.ts";

/** Result of a filter for a response without an answer. */
const INVALID = "[invalid]";

/** The number where the shots have taught to write it; the first such place. */
const STRICT = {
  gsm8k: /#### (-?[0-9.,]+)/u,
  gsm8k_cot: /The answer is (-?[0-9.,]+)[^\n]/u,
} as const;

/** Anything like a number; the last such place. */
const FLEXIBLE = /-?[$0-9.,]{2,}|-?[0-9]+/gu;

/** The number in the format of the task's shots. */
export function strictMatch(response: string, task: keyof typeof STRICT): string {
  const match = STRICT[task].exec(response);
  return match === null ? INVALID : strip(match[1]!);
}

/** The last number, wherever it stands. */
export function flexibleExtract(response: string): string {
  const last = response.match(FLEXIBLE)?.at(-1);
  return last === undefined ? INVALID : strip(last);
}

/** Returns whether two answers agree but for commas, dollars, case, a final period and what led to them. */
export function exactMatch(prediction: string, gold: string): boolean {
  return plain(prediction) === plain(gold);
}

function plain(answer: string): string {
  const bare = answer.replaceAll(",", "").replaceAll("$", "");
  const from = bare.lastIndexOf("#### ");
  const result = from < 0 ? bare : bare.slice(from + "#### ".length);
  return result.replace(/\.(?=\n?$)/u, "").toLowerCase(); // Python's $ allows a final newline
}
