/** Expressions of JSON text: strings, numbers, fixed values, and any value (RFC 8259). */
import { exactEntries, exactItems } from "../base/exact_json.ts";
import {
  type Character,
  choice,
  complement,
  type Expression,
  NOTHING,
  range,
  type Ranges,
  repeat,
  type Rules,
  sequence,
} from "./expression.ts";
import { canonicalNumber, NUMBER } from "./numbers.ts";

/** White space between elements of JSON, bounded so that a model cannot continue with it for ever. */
export const BLANK: Expression = repeat(
  { kind: "class", ranges: [[9, 10], [13, 13], [32, 32]] },
  0,
  12,
);

/** Characters that `JSON.stringify` escapes. */
const ESCAPED: Ranges = [[0, 0x1f], [0x22, 0x22], [0x5c, 0x5c]];

const ALL = complement([]), PLAIN = complement(ESCAPED);

const ANY: Character = { kind: "character", ranges: "any spelling" };
const CANONICAL: Character = { kind: "character", ranges: ALL };

/** A string of `min` to `max` characters (code points), in any spelling. */
export function string(min = 0, max = Infinity): Expression {
  return sequence('"', repeat(ANY, min, max), '"');
}

/** Any text in canonical spelling. */
export const CANONICAL_TEXT: Expression = repeat(CANONICAL, 0);

/** The spellings of a character. */
export function spellings({ ranges }: Character): Expression {
  if (ranges === "any spelling") return ANY_SPELLING;
  const plain = complement([...complement(ranges), ...ESCAPED]);
  const escaped = ESCAPED.flatMap(([first, last]) =>
    Array.from({ length: last - first + 1 }, (_, i) => first + i)
  ).filter((point) => ranges.some(([first, last]) => first <= point && point <= last));
  const escapes = escaped.map((point) => JSON.stringify(String.fromCharCode(point)).slice(1, -1));
  return choice(plain.length > 0 ? { kind: "class", ranges: plain } : NOTHING, ...escapes);
}

const HEX = range("09AFaf"), D = range("DDdd");

/** Halves of a surrogate pair are one character, and allowed as a pair only. */
const ANY_SPELLING = choice(
  { kind: "class", ranges: PLAIN },
  sequence("\\", choice(...'"\\/bfnrt')),
  sequence("\\u", choice(sequence(range("09ACEFacef"), HEX), sequence(D, range("07"))), HEX, HEX),
  sequence("\\u", D, range("89ABab"), HEX, HEX, "\\u", D, range("CFcf"), HEX, HEX),
);

/** Strings in canonical spelling that are none of the names. */
export function stringExcept(names: readonly string[]): Expression {
  const rest = sequence(CANONICAL_TEXT, '"');
  const except = (left: readonly (readonly string[])[], depth: number): Expression => {
    const next = Map.groupBy(left.filter((name) => name.length > depth), (name) => name[depth]!);
    const isName = left.some((name) => name.length === depth);
    const others = complement(
      [...next.keys()].map((one) => [one.codePointAt(0)!, one.codePointAt(0)!]),
    );
    return choice(
      ...(isName ? [] : ['"']),
      sequence({ kind: "character", ranges: others }, rest),
      ...next.entries().map(([one, names]) =>
        sequence(JSON.stringify(one).slice(1, -1), except(names, depth + 1))
      ),
    );
  };
  // UTF-8 cannot write a lone surrogate, so a key never has one.
  const whole = names.filter((name) => name.isWellFormed());
  return sequence('"', except(whole.map((name) => Array.from(name)), 0));
}

/** Elements between brackets or braces, with a comma between them. */
export function separated(element: Expression): Expression {
  return sequence(BLANK, ",", BLANK, element);
}

/** A key with its value. */
export function member(key: Expression, value: Expression): Expression {
  return sequence(key, BLANK, ":", BLANK, value);
}

/** A value as it is written in a schema, with the order of its keys and the digits of its numbers. */
export function constant(value: unknown, number?: string): Expression {
  if (typeof value === "number") return canonicalNumber(number ?? String(value));
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  const elements = Array.isArray(value)
    ? exactItems(value).map(([item, number]) => constant(item, number))
    : exactEntries(value as Record<string, unknown>).map(([key, item, number]) =>
      member(JSON.stringify(key), constant(item, number))
    );
  const [open, close] = Array.isArray(value) ? "[]" : "{}";
  if (elements.length === 0) return sequence(open!, BLANK, close!);
  const written = elements.map((element, i) => i === 0 ? element : separated(element));
  return sequence(open!, BLANK, ...written, BLANK, close!);
}

/** A list: its first element, and then others after commas. */
function listOf(open: string, element: Expression, close: string): Expression {
  const elements = sequence(element, repeat(separated(element), 0), BLANK, close);
  return sequence(open, BLANK, choice(close, elements));
}

/** A list of any values. */
export function anyArray(rules: Rules): Expression {
  return rules.named("any array", () => listOf("[", anyValue(rules), "]"));
}

/** An object of any properties. */
export function anyObject(rules: Rules): Expression {
  return rules.named("any object", () => {
    return listOf("{", rules.shared(member(string(), anyValue(rules))), "}");
  });
}

/** Any value. */
export function anyValue(rules: Rules): Expression {
  return rules.named(
    "any value",
    () =>
      choice(
        string(),
        anyNumber(rules),
        "true",
        "false",
        "null",
        anyArray(rules),
        anyObject(rules),
      ),
  );
}

/** Any number. */
export function anyNumber(rules: Rules): Expression {
  return rules.named("any number", () => NUMBER);
}
