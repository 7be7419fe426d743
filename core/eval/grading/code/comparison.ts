/**
 * Decides whether a result is right, by the rules of EvalPlus (evalplus/eval/__init__.py).
 *
 * Most results equal the expected text and end there. Once an expected value was a float, the tolerance
 * of 1e-6 that it brings stays for the task's later inputs, whatever their type. One exception to
 * EvalPlus: an input that the reference solution itself fails is not counted. On Python 3.12 and later
 * there are some, polynomials of HumanEval/32 on which Newton's method diverges since `sum` rounds in
 * another way.
 */
import { allclose } from "./allclose.ts";
import { arrayTexts } from "./json_text.ts";
import { equal, keyOf, parseValue, toNumber, type Value } from "./values.ts";

/** Tolerance of a task that has none, from its first expected float on. */
const FLOAT_ATOL = 1e-6;

/** Returns whether the result of the input at `index` is right; results come in order. */
export type Comparison = (index: number, result: string) => boolean;

/** Expected result. */
export interface Expectation {
  readonly entryPoint: string;
  /** Absolute tolerance; 0 for none. */
  readonly atol: number;
  /** Argument lists as JSON. */
  readonly inputs: readonly string[];
  /** Values as text. */
  readonly expected: readonly string[];
}

/**
 * The comparison for one run, from its first input.
 * It throws a `RangeError` or `SyntaxError` for a text that the encoder does not write.
 */
export function compareWith({ entryPoint, atol, inputs, expected }: Expectation): Comparison {
  const rule = RULES[entryPoint];
  const toleranceAt = (index: number) => {
    if (atol !== 0) return atol;
    const floats = expected.slice(0, index + 1).some((text) => isFloats(parseValue(text)));
    return floats ? FLOAT_ATOL : 0;
  };
  const isRight = (index: number, result: string) => {
    const wanted = expected[index]!;
    // Equal texts are equal values, but for NaN.
    if (!rule && result === wanted && !result.includes('"nan"')) return true;
    const [actual, reference] = [parseValue(result), parseValue(wanted)];
    const tolerance = toleranceAt(index);
    const question = { actual, reference, input: inputs[index]!, tolerance };
    const same = rule ? rule(question) : equal(actual, reference);
    // The zero of a polynomial has had its tolerance.
    return same ||
      (entryPoint !== "find_zero" && tolerance !== 0 && near(actual, reference, tolerance));
  };
  // An input that the reference fails on this Python is not counted.
  return (index, result) => isRight(index, result) || !isRight(index, expected[index]!);
}

const lengthOf = (value: Value) =>
  value.kind === "list" || value.kind === "tuple" ? value.items.length : undefined;

function near(actual: Value, expected: Value, tolerance: number): boolean {
  return actual.type === expected.type && lengthOf(actual) === lengthOf(expected) &&
    allclose(actual, expected, tolerance);
}

function isFloats(value: Value): boolean {
  if (value.kind === "list" || value.kind === "tuple") {
    return value.items.length > 0 && value.items.every((item) => item.kind === "float");
  }
  return value.kind === "float";
}

interface Question {
  readonly actual: Value;
  readonly reference: Value;
  /** The argument list as JSON. */
  readonly input: string;
  readonly tolerance: number;
}

/** Returns whether a result counts as equal, by entry point. */
type Rule = (question: Question) => boolean;

const either = (accepts: Rule): Rule => (question) =>
  equal(question.actual, question.reference) || accepts(question);

const asSets: Rule = ({ actual, reference }) => {
  const [a, b] = [elements(actual), elements(reference)];
  return a !== undefined && b !== undefined && a.size === b.size && a.isSubsetOf(b);
};

/** The reference's result matters only for whether there is one. */
const found: Rule = ({ actual, reference }) => {
  const wanted = reference.kind !== "none";
  return actual.kind === "bool" ? actual.value === wanted : (actual.kind !== "none") === wanted;
};

const RULES: Readonly<Record<string, Rule>> = {
  // HumanEval/32: any zero of the polynomial.
  find_zero: ({ actual, input, tolerance }) => {
    const x = toNumber(actual);
    if (x === undefined) return false;
    const [coefficients] = JSON.parse(input) as [number[]];
    const value = coefficients.reduce((sum, factor, power) => sum + factor * x ** power, 0);
    return Math.abs(value) <= tolerance;
  },
  are_equivalent: () => true,
  sum_div: either(({ actual }) => toNumber(actual) === 0),
  // The height as that of the apex over the base.
  surface_Area: either(({ actual, input, tolerance }) => {
    const [edge, height] = JSON.parse(input) as [number, number];
    const area = edge ** 2 + 4 * (edge * Math.sqrt((edge / 2) ** 2 + height ** 2)) / 2;
    const value = toNumber(actual);
    return value !== undefined && Math.abs(value - roundHalfEven(area)) <= tolerance;
  }),
  // Both numbers padded with zeros to one length.
  digit_distance_nums: either(({ actual, input }) => {
    // As text: some have more digits than a number keeps.
    const texts = arrayTexts(input)!;
    const length = Math.max(...texts.map((text) => text.length));
    const [a, b] = texts.map((text) => text.padStart(length, "0"));
    const distance = [...a!].reduce((sum, digit, i) => sum + Math.abs(+digit - +b![i]!), 0);
    return toNumber(actual) === distance;
  }),
  similar_elements: asSets,
  find_char_long: asSets,
  common_in_nested_lists: asSets,
  extract_singly: asSets,
  larg_nnum: asSets,
  intersection_array: asSets,
  find_dissimilar: asSets,
  Diff: asSets,
  check_str: found,
  text_match_three: found,
  text_starta_endb: found,
};

function roundHalfEven(value: number): number {
  const below = Math.floor(value);
  const rest = value - below;
  return rest > 0.5 || (rest === 0.5 && below % 2 !== 0) ? below + 1 : below;
}

/** Returns the elements of Python's `set(value)`, as keys; undefined where it raises. */
function elements(value: Value): Set<string> | undefined {
  if (value.kind === "named") return elements(value.value);
  if (value.kind === "str") {
    return new Set([...value.value].map((character) => JSON.stringify(character)));
  }
  if (value.kind === "dict") return new Set(value.entries.map(([key]) => keyOf(key)));
  if (!("items" in value) || !value.items.every(isHashable)) return undefined;
  return new Set(value.items.map(keyOf));
}

function isHashable(value: Value): boolean {
  if (value.kind === "tuple") return value.items.every(isHashable);
  return value.kind !== "list" && value.kind !== "set" && value.kind !== "dict";
}
