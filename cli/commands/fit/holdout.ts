/** `--holdout`: which observations stay out of the fit, by conditions on N or P. */
import type { Observation } from "../../../core/analysis/law.ts";
import { DataError, UsageError } from "../../../core/base/errors.ts";
import { parseNumber } from "../../framework/values.ts";

/** Observations that are fitted, and those that are only predicted. */
export interface Split {
  readonly used: readonly Observation[];
  readonly heldOut: readonly Observation[];
}

type Condition = (observation: Observation) => boolean;

const COMPARE: Readonly<Record<string, (a: number, b: number) => boolean>> = {
  "=": (a, b) => a === b,
  "<": (a, b) => a < b,
  ">": (a, b) => a > b,
  "<=": (a, b) => a <= b,
  ">=": (a, b) => a >= b,
};

/** Reads conditions such as `P=8`; an observation is held out when any is true. */
export function parseHoldout(texts: readonly string[]): Condition {
  const conditions = texts.map((text): Condition => {
    const [, name, sign, digits = ""] = /^([NP])\s*([<>]=?|=)\s*(\S+)$/.exec(text.trim()) ?? [];
    const bound = parseNumber(digits);
    if (sign === undefined || bound === undefined) {
      throw new UsageError(
        `invalid value "${text}" for \`--holdout\`: must be a condition such as P=8 or N>2.5B`,
      );
    }
    return (observation) => COMPARE[sign]!(name === "N" ? observation.n : observation.p, bound);
  });
  return (observation) => conditions.some((isTrue) => isTrue(observation));
}

/**
 * Parts observations by a condition.
 * @throws {DataError} when conditions were given that no observation meets
 */
export function splitObservations(
  observations: readonly Observation[],
  isHeldOut: Condition,
  texts: readonly string[],
): Split {
  const heldOut = observations.filter(isHeldOut);
  if (texts.length > 0 && heldOut.length === 0) {
    throw new DataError(
      `no observation matches \`--holdout ${texts.join(",")}\``,
    );
  }
  return { used: observations.filter((row) => !isHeldOut(row)), heldOut };
}
