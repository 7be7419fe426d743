/** Parses expressions with the precedence of Jinja2 (`jinja2/parser.py`), which is not Python's. */
import type { Application, Argument, Expression } from "./syntax.ts";
import type { TokenStream } from "./token_stream.ts";

const COMPARISONS = ["==", "!=", "<", "<=", ">", ">="];

const CONSTANTS: ReadonlyMap<string, boolean | null> = new Map([
  ["true", true],
  ["True", true],
  ["false", false],
  ["False", false],
  ["none", null],
  ["None", null],
]);

/** An expression with conditions: `a if b else c`. */
export function parseExpression(stream: TokenStream): Expression {
  let value = parseOr(stream);
  while (stream.skip("name", "if")) {
    const test = parseOr(stream);
    const otherwise = stream.skip("name", "else") ? parseExpression(stream) : undefined;
    value = { kind: "conditional", test, then: value, otherwise };
  }
  return value;
}

/** An expression, or several with commas between them. */
export function parseTuple(
  stream: TokenStream,
  parse: (stream: TokenStream) => Expression = parseExpression,
): Expression {
  const first = parse(stream);
  if (!stream.is("operator", ",")) return first;
  const items = [first];
  while (stream.skip("operator", ",") && !isTupleEnd(stream)) items.push(parse(stream));
  return { kind: "tuple", items };
}

function isTupleEnd(stream: TokenStream): boolean {
  return stream.is("end") || stream.is("close") || stream.is("operator", ")") ||
    stream.is("name", "recursive");
}

/** An expression without `if`, such as the iterable of a `for` loop. */
export function parseOr(stream: TokenStream): Expression {
  let left = parseAnd(stream);
  while (stream.skip("name", "or")) left = { kind: "or", left, right: parseAnd(stream) };
  return left;
}

function parseAnd(stream: TokenStream): Expression {
  let left = parseNot(stream);
  while (stream.skip("name", "and")) left = { kind: "and", left, right: parseNot(stream) };
  return left;
}

function parseNot(stream: TokenStream): Expression {
  if (stream.skip("name", "not")) return { kind: "not", of: parseNot(stream) };
  return parseCompare(stream);
}

function parseCompare(stream: TokenStream): Expression {
  const first = parseSum(stream), rest: (readonly [string, Expression])[] = [];
  for (;;) {
    const operator = comparison(stream);
    if (operator === undefined) return rest.length === 0 ? first : { kind: "compare", first, rest };
    rest.push([operator, parseSum(stream)]);
  }
}

function comparison(stream: TokenStream): string | undefined {
  if (stream.skip("name", "in")) return "in";
  if (stream.is("name", "not") && stream.is("name", "in", 1)) {
    stream.expect("name", "not");
    stream.expect("name", "in");
    return "not in";
  }
  return COMPARISONS.find((sign) => stream.skip("operator", sign));
}

/** Operators that bind equally, from the left. */
function parseBinary(
  stream: TokenStream,
  operators: readonly string[],
  parse: (stream: TokenStream) => Expression,
): Expression {
  let left = parse(stream);
  for (;;) {
    const operator = operators.find((sign) => stream.skip("operator", sign));
    if (operator === undefined) return left;
    left = { kind: "binary", operator, left, right: parse(stream) };
  }
}

function parseSum(stream: TokenStream): Expression {
  return parseBinary(stream, ["+", "-"], parseConcat);
}

function parseConcat(stream: TokenStream): Expression {
  const items = [parseProduct(stream)];
  while (stream.skip("operator", "~")) items.push(parseProduct(stream));
  return items.length === 1 ? items[0]! : { kind: "concat", items };
}

function parseProduct(stream: TokenStream): Expression {
  return parseBinary(stream, ["*", "/", "//", "%"], parsePower);
}

function parsePower(stream: TokenStream): Expression {
  return parseBinary(stream, ["**"], (stream) => parseUnary(stream, true));
}

function parseUnary(stream: TokenStream, withFilters: boolean): Expression {
  const value: Expression = stream.skip("operator", "-")
    ? { kind: "negative", of: parseUnary(stream, false) }
    : stream.skip("operator", "+")
    ? { kind: "positive", of: parseUnary(stream, false) }
    : parsePrimary(stream);
  const whole = parsePostfix(stream, value);
  return withFilters ? parseApplications(stream, whole) : whole;
}

/** A name, literal, or expression in brackets. */
export function parsePrimary(stream: TokenStream): Expression {
  const token = stream.current;
  if (token?.kind === "name") {
    stream.expect("name");
    const constant = CONSTANTS.get(token.text);
    return constant === undefined
      ? { kind: "name", name: token.text }
      : { kind: "constant", value: constant };
  }
  if (token?.kind === "string") {
    let value = "";
    while (stream.is("string")) value += stream.expect("string");
    return { kind: "constant", value };
  }
  if (token?.kind === "number") return { kind: "constant", value: number(stream.expect("number")) };
  if (stream.skip("operator", "(")) {
    const value: Expression = stream.is("operator", ")")
      ? { kind: "tuple", items: [] }
      : parseTuple(stream);
    stream.expect("operator", ")");
    return value;
  }
  if (stream.skip("operator", "[")) {
    return { kind: "list", items: parseItems(stream, "]", parseExpression) };
  }
  if (stream.skip("operator", "{")) {
    return { kind: "dict", entries: parseItems(stream, "}", parseEntry) };
  }
  throw stream.unexpected("an expression");
}

function number(text: string): bigint | number {
  return /^0[box]/i.test(text) || /^\d+$/.test(text) ? BigInt(text) : Number(text);
}

function parseEntry(stream: TokenStream): readonly [Expression, Expression] {
  const key = parseExpression(stream);
  stream.expect("operator", ":");
  return [key, parseExpression(stream)];
}

function parseItems<T>(stream: TokenStream, end: string, parse: (stream: TokenStream) => T): T[] {
  const items: T[] = [];
  while (!stream.skip("operator", end)) {
    if (items.length > 0) {
      stream.expect("operator", ",");
      if (stream.skip("operator", end)) break;
    }
    items.push(parse(stream));
  }
  return items;
}

/** Attributes, items and calls after a value. */
function parsePostfix(stream: TokenStream, value: Expression): Expression {
  for (;;) {
    if (stream.is("operator", ".") || stream.is("operator", "[")) {
      value = parseMember(stream, value);
    } else if (stream.is("operator", "(")) {
      value = { kind: "call", of: value, args: parseArguments(stream) };
    } else return value;
  }
}

function parseMember(stream: TokenStream, of: Expression): Expression {
  if (stream.skip("operator", ".")) {
    if (stream.is("name")) return { kind: "attribute", of, name: stream.expect("name") };
    const index: Expression = { kind: "constant", value: BigInt(stream.expect("number")) };
    return { kind: "item", of, index };
  }
  stream.expect("operator", "[");
  const bounds: (Expression | undefined)[] = [undefined];
  while (!stream.is("operator", "]")) {
    if (stream.skip("operator", ":")) bounds.push(undefined);
    else bounds[bounds.length - 1] = parseExpression(stream);
    if (stream.is("operator", ",")) {
      throw new Error("an item with several indices is not supported");
    }
  }
  stream.expect("operator", "]");
  if (bounds.length > 3) throw new Error("a slice has at most two colons");
  if (bounds.length > 1) return { kind: "slice", of, bounds };
  if (!bounds[0]) throw stream.unexpected("an index");
  return { kind: "item", of, index: bounds[0] };
}

/** Filters, tests and calls after a value. */
function parseApplications(stream: TokenStream, value: Expression): Expression {
  for (;;) {
    if (stream.skip("operator", "|")) {
      value = { kind: "filter", of: value, apply: parseFilter(stream) };
    } else if (stream.skip("name", "is")) value = parseTest(stream, value);
    else if (stream.is("operator", "(")) {
      value = { kind: "call", of: value, args: parseArguments(stream) };
    } else return value;
  }
}

/** The name and the arguments of a filter; its bar is taken. */
export function parseFilter(stream: TokenStream): Application {
  let name = stream.expect("name");
  while (stream.skip("operator", ".")) name += `.${stream.expect("name")}`;
  return { name, args: stream.is("operator", "(") ? parseArguments(stream) : [] };
}

function parseTest(stream: TokenStream, of: Expression): Expression {
  const isNegated = stream.skip("name", "not");
  const name = stream.expect("name");
  const args = stream.is("operator", "(")
    ? parseArguments(stream)
    : beginsArgument(stream)
    ? [{ value: parsePostfix(stream, parsePrimary(stream)) }]
    : [];
  return { kind: "test", of, apply: { name, args }, isNegated };
}

/** Returns whether the argument of a test follows without brackets. */
function beginsArgument(stream: TokenStream): boolean {
  const { current } = stream;
  if (current?.kind !== "name") {
    return stream.is("string") || stream.is("number") ||
      ["[", "{"].some((bracket) => stream.is("operator", bracket));
  }
  if (current.text === "is") throw new Error("tests with `is` cannot be chained");
  return !["else", "or", "and"].includes(current.text);
}

/** Arguments of a call in their brackets. */
export function parseArguments(stream: TokenStream): Argument[] {
  stream.expect("operator", "(");
  return parseItems(stream, ")", (stream): Argument => {
    for (const spread of ["*", "**"] as const) {
      if (stream.skip("operator", spread)) return { value: parseExpression(stream), spread };
    }
    if (stream.is("name") && stream.is("operator", "=", 1)) {
      const name = stream.expect("name");
      stream.expect("operator", "=");
      return { name, value: parseExpression(stream) };
    }
    return { value: parseExpression(stream) };
  });
}
