/** Values of expressions. */
import { requireFieldName } from "./globals.ts";
import { attribute, call, item } from "./methods.ts";
import { spend, spendItems } from "./meter.ts";
import { binary, concat, signed, slice } from "./operators.ts";
import type { Scope } from "./scope.ts";
import { runFilter } from "./sequence_filters.ts";
import type { Application, Argument, Expression, Target } from "./syntax.ts";
import { str } from "./text.ts";
import { runTest } from "./tests.ts";
import {
  contains,
  Dict,
  equal,
  iterate,
  type Keywords,
  less,
  Namespace,
  PythonError,
  truth,
  Tuple,
  typeError,
  Undefined,
  type Value,
} from "./values.ts";

/** The value of an expression. */
export function evaluate(node: Expression, scope: Scope): Value {
  spend(1);
  switch (node.kind) {
    case "constant":
      return node.value;
    case "name":
      return scope.get(node.name);
    case "attribute":
      return attribute(evaluate(node.of, scope), node.name);
    case "item":
      return item(evaluate(node.of, scope), evaluate(node.index, scope));
    case "slice":
      return slice(
        evaluate(node.of, scope),
        node.bounds.map((bound) => bound && evaluate(bound, scope)),
      );
    case "list":
    case "tuple":
    case "concat":
      return several(node, scope);
    case "dict":
      return new Dict(
        node.entries.map(([key, value]) => [evaluate(key, scope), evaluate(value, scope)]),
      );
    case "conditional":
      return conditional(node, scope);
    case "binary":
      return binary(node.operator, evaluate(node.left, scope), evaluate(node.right, scope));
    case "and":
    case "or": {
      const left = evaluate(node.left, scope);
      return truth(left) === (node.kind === "and") ? evaluate(node.right, scope) : left;
    }
    case "not":
      return !truth(evaluate(node.of, scope));
    case "negative":
    case "positive":
      return signed(node.kind, evaluate(node.of, scope));
    case "compare":
      return compareAll(node, scope);
    case "call":
      return callOf(node, scope);
    case "filter":
      return applyFilter(evaluate(node.of, scope), node.apply, scope);
    case "test": {
      const { args, keywords } = evaluateArguments(node.apply.args, scope);
      const passes = runTest(node.apply.name, evaluate(node.of, scope), args, keywords);
      return passes !== node.isNegated;
    }
  }
}

function several(
  { kind, items }: Expression & { kind: "list" | "tuple" | "concat" },
  scope: Scope,
): Value {
  const values = items.map((one) => evaluate(one, scope));
  return kind === "concat" ? concat(values) : kind === "list" ? values : new Tuple(values);
}

function conditional(
  { test, then, otherwise }: Expression & { kind: "conditional" },
  scope: Scope,
): Value {
  if (truth(evaluate(test, scope))) return evaluate(then, scope);
  if (otherwise) return evaluate(otherwise, scope);
  return new Undefined(
    "the inline if-expression evaluated to false and no else section was defined.",
  );
}

function compareAll({ first, rest }: Expression & { kind: "compare" }, scope: Scope): boolean {
  let left = evaluate(first, scope);
  for (const [operator, operand] of rest) {
    const right = evaluate(operand, scope);
    if (!compare(operator, left, right)) return false;
    left = right;
  }
  return true;
}

function compare(operator: string, left: Value, right: Value): boolean {
  switch (operator) {
    case "==":
      return equal(left, right);
    case "!=":
      return !equal(left, right);
    case "in":
      return contains(right, left);
    case "not in":
      return !contains(right, left);
    case "<":
    case "<=":
      return less(left, right, operator === "<=", operator);
    default:
      return less(right, left, operator === ">=", operator);
  }
}

function callOf({ of, args: given }: Expression & { kind: "call" }, scope: Scope): Value {
  const callee = evaluate(of, scope);
  const { args, keywords } = evaluateArguments(given, scope);
  return call(callee, args, keywords);
}

/** Arguments of a call, with lists and dicts spread out. */
export function evaluateArguments(
  given: readonly Argument[],
  scope: Scope,
): { args: Value[]; keywords: Keywords } {
  const args: Value[] = [], keywords = new Map<string, Value>();
  for (const { name, value, spread } of given) {
    const found = evaluate(value, scope);
    if (spread === "*") {
      const items = iterate(found); // which a generator gives once
      spendItems(args.length + items.length);
      args.push(...items);
    } else if (spread === "**") {
      if (!(found instanceof Dict)) throw typeError("argument after ** must be a mapping");
      for (const [key, one] of found.entries()) keywords.set(str(key), one);
    } else if (name !== undefined) keywords.set(name, found);
    else args.push(found);
  }
  return { args, keywords };
}

/** A value after a filter. */
export function applyFilter(value: Value, { name, args: given }: Application, scope: Scope): Value {
  const { args, keywords } = evaluateArguments(given, scope);
  return runFilter(name, value, args, keywords);
}

/** Gives names their values; several names take the items of one value. */
export function assign(target: Target, value: Value, scope: Scope): void {
  switch (target.kind) {
    case "name":
      return scope.set(target.name, value);
    case "field": {
      const namespace = scope.get(target.namespace);
      if (!(namespace instanceof Namespace)) {
        throw typeError("cannot assign attribute on non-namespace object");
      }
      requireFieldName(target.name);
      namespace.fields.set(target.name, value);
      return;
    }
    case "targets": {
      const items = iterate(value), { targets } = target;
      if (items.length !== targets.length) {
        const problem = items.length < targets.length ? "not enough" : "too many";
        throw new PythonError(
          "ValueError",
          `${problem} values to unpack (expected ${targets.length})`,
        );
      }
      targets.forEach((one, i) => assign(one, items[i]!, scope));
    }
  }
}
