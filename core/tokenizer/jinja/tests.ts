/** Tests of Jinja: what stands after `is`. */
import { binary } from "./operators.ts";
import { invoke, type Signature, signature } from "./signature.ts";
import { str } from "./text.ts";
import {
  Callable,
  contains,
  Dict,
  equal,
  Generator,
  isNumber,
  isText,
  itemsOf,
  type Keywords,
  less,
  Markup,
  Undefined,
  type Value,
  View,
} from "./values.ts";

const is = (test: (value: Value) => boolean) => signature("", test);
const compare = (test: (value: Value, other: Value) => boolean) => signature("other", test);

const equalTo = compare(equal);
const different = compare((value, other) => !equal(value, other));
const lessThan = compare((value, other) => less(value, other, false, "<"));
const atMost = compare((value, other) => less(value, other, true, "<="));
const greaterThan = compare((value, other) => less(other, value, false, ">"));
const atLeast = compare((value, other) => less(other, value, true, ">="));

const rest = (value: Value, divisor: Value) => binary("%", value, divisor);

function isIterable(value: Value): boolean {
  return isText(value) || itemsOf(value) !== undefined || value instanceof Dict ||
    value instanceof View || value instanceof Generator || value instanceof Undefined;
}

function isSequence(value: Value): boolean {
  return isText(value) || itemsOf(value) !== undefined || value instanceof Dict ||
    value instanceof Undefined;
}

/** Identity: equal numbers and texts of a template are one object in CPython where they are short. */
function isSame(value: Value, other: Value): boolean {
  if (typeof value === "number") return Object.is(value, other) && Number.isNaN(value);
  return value === other;
}

const TESTS: Readonly<Record<string, Signature<Value>>> = {
  boolean: is((value) => typeof value === "boolean"),
  callable: is((value) => value instanceof Callable || value instanceof Undefined),
  defined: is((value) => !(value instanceof Undefined)),
  divisibleby: compare((value, divisor) => equal(rest(value, divisor), 0n)),
  escaped: is((value) => value instanceof Markup),
  even: is((value) => equal(rest(value, 2n), 0n)),
  false: is((value) => value === false),
  float: is((value) => typeof value === "number"),
  in: compare((value, container) => contains(container, value)),
  integer: is((value) => typeof value === "bigint"),
  iterable: is(isIterable),
  mapping: is((value) => value instanceof Dict),
  none: is((value) => value === null),
  number: is(isNumber),
  odd: is((value) => equal(rest(value, 2n), 1n)),
  sameas: compare(isSame),
  sequence: is(isSequence),
  string: is(isText),
  test: is((value) => isText(value) && Object.hasOwn(TESTS, str(value))),
  true: is((value) => value === true),
  undefined: is((value) => value instanceof Undefined),
  "!=": different,
  "<": lessThan,
  "<=": atMost,
  "==": equalTo,
  ">": greaterThan,
  ">=": atLeast,
  eq: equalTo,
  equalto: equalTo,
  ge: atLeast,
  greaterthan: greaterThan,
  gt: greaterThan,
  le: atMost,
  lessthan: lessThan,
  lt: lessThan,
  ne: different,
};

/** Returns whether a value passes a test. @throws {Error} for an unknown one */
export function runTest(
  name: string,
  value: Value,
  args: readonly Value[],
  keywords: Keywords,
): boolean {
  if (name === "lower" || name === "upper") throw new Error(`the test '${name}' is not supported`);
  if (!Object.hasOwn(TESTS, name)) throw new Error(`No test named '${name}'`);
  return invoke(name, TESTS[name]!, value, args, keywords) === true;
}
