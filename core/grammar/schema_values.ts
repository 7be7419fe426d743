/** Expressions of the values of one type, and of fixed values. */
import { show } from "../base/files.ts";
import { MAX_STATES } from "./containers.ts";
import {
  choice,
  type Expression,
  NOTHING,
  oneOfTexts,
  type Rules,
  sequence,
} from "./expression.ts";
import { FORMATS } from "./formats.ts";
import { intersection } from "./intersection.ts";
import { anyNumber, BLANK, constant, separated } from "./json_text.ts";
import { ceil, compare, decimals, floor, INTEGER, integers, MAX_BOUND } from "./numbers.ts";
import { patternText } from "./pattern.ts";
import {
  above,
  below,
  bound,
  type Field,
  type Fields,
  isOfType,
  list,
  refuse,
  statedTypes,
  textOf,
} from "./schema_fields.ts";

/** Least and most characters or items. */
interface Bounds {
  readonly min: number;
  readonly max: number;
}

/** Greatest multiple: other programs round numbers beyond it. */
const MAX_MULTIPLE = BigInt(Number.MAX_SAFE_INTEGER);

/** Most values of which each may come once in any order; more come in theirs. */
const MAX_UNORDERED = 8;

/** Strings of a length that match all these patterns. */
export function textOfPatterns(
  patterns: readonly string[],
  { min, max }: Bounds,
  rules: Rules,
): Expression {
  const all = patterns.map(patternText), [only] = all;
  const isFree = min === 0 && max === Infinity;
  if (only && all.length === 1 && isFree) return sequence('"', only, '"');
  const counter = {
    apart: "",
    next: (count: number) =>
      count < max ? Math.min(count + 1, max < Infinity ? max : min) : undefined,
    isEnd: (count: number) => count >= min,
  };
  const text = intersection(all, counter, "character", rules);
  if (text) return sequence('"', text, '"');
  const keyword = isFree ? "pattern" : max < Infinity ? "maxLength" : "minLength";
  return refuse(keyword, "beside a pattern or format with which it needs too many states");
}

/** Integers within the bounds of a schema. */
export function integerOf(fields: Fields, rules: Rules): Expression {
  const low = strictest([
    mapped(bound(fields, "minimum"), ceil),
    mapped(bound(fields, "exclusiveMinimum"), (value) => floor(value) + 1n),
  ], isAbove);
  const high = strictest([
    mapped(bound(fields, "maximum"), floor),
    mapped(bound(fields, "exclusiveMaximum"), (value) => ceil(value) - 1n),
  ], isBelow);
  const multiple = fields.get("multipleOf");
  if (multiple) return multiples(rules, multiple.value, low, high);
  if (low === undefined && high === undefined) return rules.named("integer", () => INTEGER);
  return integers(low, high);
}

function multiples(
  rules: Rules,
  of: unknown,
  low: bigint | undefined,
  high: bigint | undefined,
): Expression {
  if (!Number.isSafeInteger(of) || of as number <= 0) refuse("multipleOf", `for ${show(of)}`);
  const numbers = integers(
    strictest([low, -MAX_MULTIPLE], isAbove),
    strictest([high, MAX_MULTIPLE], isBelow),
  );
  if (of === 1) return numbers;
  const counter = {
    apart: "0123456789",
    next: (rest: number, point: number) =>
      point === 45 ? rest : (10 * rest + point - 48) % (of as number), // "-", and digits from "0"
    isEnd: (rest: number) => rest === 0,
  };
  return intersection([numbers], counter, "class", rules) ??
    refuse("multipleOf", `for ${show(of)}, which needs too many states`);
}

/** Numbers within the bounds of a schema. */
export function numberOf(fields: Fields, rules: Rules): Expression {
  // Multiples of an integer are integers.
  if (fields.has("multipleOf")) return integerOf(fields, rules);
  const next = (keyword: string, neighbour: typeof above) =>
    mapped(
      bound(fields, keyword),
      (value) => neighbour(value) ?? refuse(keyword, `with more than ${MAX_BOUND} digits`),
    );
  const low = strictest(
    [bound(fields, "minimum"), next("exclusiveMinimum", above)],
    (a, b) => compare(a, b) > 0,
  );
  const high = strictest(
    [bound(fields, "maximum"), next("exclusiveMaximum", below)],
    (a, b) => compare(a, b) < 0,
  );
  return low || high ? decimals(low, high) : anyNumber(rules);
}

/** Lists of values, each at most once. */
export function uniqueList(
  values: readonly Expression[],
  { min, max }: Bounds,
  rules: Rules,
): Expression {
  if (values.length > MAX_UNORDERED && values.length ** 2 > MAX_STATES) {
    refuse("uniqueItems", `for an enum of ${values.length} values`);
  }
  const isOrdered = values.length > MAX_UNORDERED, id = rules.size;
  const behind = (left: readonly number[], count: number): Expression =>
    rules.named(`unique ${id} ${left} ${count}`, () => {
      const next = left.map((value, i) => {
        const others = left.filter((_, other) => isOrdered ? other > i : other !== i);
        const item = values[value]!;
        return sequence(count === 0 ? item : separated(item), behind(others, count + 1));
      });
      const end = count === 0 ? "]" : sequence(BLANK, "]");
      return choice(count >= min ? end : NOTHING, ...(count < max ? next : []));
    });
  return sequence("[", BLANK, behind([...values.keys()], 0));
}

/** The values of `const` or `enum`, as far as what is beside them allows. */
export function listedIn(fields: Fields): Field[] {
  const keyword = fields.has("const") ? "const" : "enum";
  const other = [...fields.keys()].find((name) =>
    !["const", "enum", "type", "format"].includes(name)
  );
  if (other !== undefined) refuse(other, `beside "${keyword}"`);
  const fixed = fields.get("const"), listed = fields.get("enum");
  const format = FORMATS.get(String(fields.get("format")?.value));
  const all = listed
    ? list("enum", listed.value).map(([value, number]) => ({ value, number }))
    : [fixed!];
  const types = statedTypes(fields);
  const possible = all.filter((one) =>
    (!fixed || textOf(one) === textOf(fixed)) &&
    (!types || types.some((type) => isOfType(one.value, type))) &&
    (!format || typeof one.value !== "string" || new RegExp(format, "u").test(one.value))
  );
  if (possible.length === 0) refuse(keyword, "where no value fits what is beside it");
  return [...new Map(possible.map((one) => [textOf(one), one])).values()];
}

export function constantsOf(fields: Fields): Expression[] {
  return listedIn(fields).map((one) => {
    if (Math.abs(Number(one.value)) === Infinity) {
      refuse(fields.has("const") ? "const" : "enum", "with a number that is not finite");
    }
    return constant(one.value, one.number);
  });
}

export function constants(fields: Fields): Expression {
  const expressions = constantsOf(fields);
  const texts = expressions.filter((one) => typeof one === "string");
  return choice(oneOfTexts(texts), ...expressions.filter((one) => typeof one !== "string"));
}

function mapped<A, B>(value: A | undefined, to: (value: A) => B): B | undefined {
  return value === undefined ? undefined : to(value);
}

const isAbove = (a: bigint, b: bigint) => a > b, isBelow = (a: bigint, b: bigint) => a < b;

/** The strictest of the bounds that there are. */
function strictest<T>(
  bounds: readonly (T | undefined)[],
  isStricter: (a: T, b: T) => boolean,
): T | undefined {
  return bounds.reduce((a, b) => a === undefined || b !== undefined && isStricter(b, a) ? b : a);
}
