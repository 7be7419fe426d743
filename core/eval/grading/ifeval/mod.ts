/**
 * IFEval: whether a response follows instructions that a program can check.
 *
 * Loose forgives an introduction, a closing line and asterisks: it takes the best of eight variants of
 * the response. A blank response follows nothing, not even "no commas".
 */
import { isObject, show } from "../../../base/files.ts";
import { DataError } from "../../../base/errors.ts";
import { strip } from "../../python/text.ts";
import { type Checker, type Family, requireArguments } from "./checker.ts";
import { combination, content, punctuation, startEnd } from "./content.ts";
import { format } from "./format.ts";
import type { LanguageTools } from "./language_tools.ts";
import { keywords, language, lengths, letterCase } from "./words.ts";

export { loadLanguageTools } from "./language_tools.ts";

/** One thing a response is asked to do. */
export interface Instruction {
  /** `family:name`. */
  readonly id: string;
  /** The rule of that id. */
  readonly checker: Checker;
  /** Arguments; what was null, zero or empty is left out. */
  readonly kwargs: Readonly<Record<string, unknown>>;
}

/**
 * Keys of rows that ask to count `#` and `!` as letters. The reference counts a random letter in
 * their place, so its own result changes from run to run; we count the character.
 */
export const UNDEFINED_KEYS: readonly number[] = [1122, 1129];

const FAMILIES: Readonly<Record<string, Family>> = {
  keywords,
  language,
  length_constraints: lengths,
  detectable_content: content,
  detectable_format: format,
  combination,
  startend: startEnd,
  change_case: letterCase,
  punctuation,
};

/** The rule of every instruction, by id. */
export const CHECKERS: ReadonlyMap<string, Checker> = new Map(
  Object.entries(FAMILIES).flatMap(([family, members]) =>
    Object.entries(members).map(([name, checker]) => [`${family}:${name}`, checker])
  ),
);

/**
 * Outcome of each instruction, in the order of the row. `prompt` is what must be repeated where an
 * instruction does not say.
 */
export function checkResponse(
  response: string,
  instructions: readonly Instruction[],
  tools: LanguageTools,
  prompt?: string,
) {
  const variants = variantsOf(response);
  const follows = (variant: string, { checker, kwargs }: Instruction) =>
    strip(variant) !== "" && checker.check(variant, kwargs, { tools, prompt });
  const strict = instructions.map((instruction) => follows(response, instruction));
  return {
    strict,
    loose: instructions.map((instruction, i) =>
      strict[i]! || variants.some((variant) => follows(variant, instruction))
    ),
  };
}

/** Seven other readings of a response: lines left out, asterisks left out. */
function variantsOf(response: string): string[] {
  const lines = response.split("\n");
  const cut = [lines.slice(1), lines.slice(0, -1), lines.slice(1, -1)]
    .map((kept) => strip(kept.join("\n")));
  const plain = [response, ...cut].map((text) => text.replaceAll("*", ""));
  return [...new Set([...cut, ...plain])];
}

/**
 * Validates the columns `instruction_id_list` and `kwargs` of a row.
 * @param where the row, for messages
 * @throws {DataError} when they are not lists of one length, or an instruction is unknown or lacks
 * an argument
 */
export function requireInstructions(ids: unknown, kwargs: unknown, where: string): Instruction[] {
  if (!Array.isArray(ids) || !ids.every((id) => typeof id === "string")) {
    throw new DataError(
      `"instruction_id_list" of ${where} is ${show(ids)}, expected a list of ids`,
    );
  }
  if (!Array.isArray(kwargs) || kwargs.length !== ids.length || !kwargs.every(isObject)) {
    throw new DataError(
      `"kwargs" of ${where} is ${show(kwargs)}, expected a list of ${ids.length} objects, ` +
        "one for each instruction",
    );
  }
  return ids.map((id: string, i) => {
    const given = Object.entries(kwargs[i] as Record<string, unknown>);
    const kept = Object.fromEntries(given.filter(([, value]) => Boolean(value)));
    const checker = requireChecker(id, where);
    requireArguments(checker, kept, `${id} in ${where}`);
    return { id, checker, kwargs: kept };
  });
}

function requireChecker(id: string, where: string): Checker {
  const checker = CHECKERS.get(id);
  if (checker !== undefined) return checker;
  const name = id.split(":").at(-1)!;
  const similar = [...CHECKERS.keys()].filter((known) => name !== "" && known.includes(name));
  throw new DataError(`${where} has the unknown instruction ${JSON.stringify(id)}`, {
    hints: [
      similar.length > 0
        ? `did you mean ${similar.join(" or ")}?`
        : `known instructions: ${[...CHECKERS.keys()].join(", ")}`,
    ],
  });
}
