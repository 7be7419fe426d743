/**
 * Renders a template to the text that transformers 5.24 with Jinja2 3.1.6 makes of it.
 *
 * A template reads its variables and the tables of this folder, nothing else: no object of the program
 * is within its reach. Its work is counted (`meter.ts`); what is not supported is refused by name.
 */
import { applyFilter, assign, evaluate, evaluateArguments } from "./evaluate.ts";
import { globalNames } from "./globals.ts";
import { type LoopFlow, type LoopParts, runLoop } from "./loop.ts";
import { metered, requireText, spend, spendText } from "./meter.ts";
import { call } from "./methods.ts";
import { Scope } from "./scope.ts";
import type { Application, Block, MacroBody, Statement } from "./syntax.ts";
import { str } from "./text.ts";
import {
  Callable,
  Dict,
  type Keywords,
  truth,
  Tuple,
  typeError,
  Undefined,
  type Value,
} from "./values.ts";

/** Renders a parsed template. @throws {Error} with what it raises, or with what is not supported */
export function render(
  template: Block,
  variables: Iterable<readonly [string, Value]>,
  now: Date,
): string {
  return metered(() => {
    const scope = new Scope(new Scope(new Scope(undefined, globalNames(now)), variables));
    const out = new Output();
    renderBlock(template, scope, out);
    return out.text;
  });
}

/** The text that a block has made so far. */
class Output {
  #text = "";

  get text(): string {
    return this.#text;
  }

  write(text: string): void {
    spendText(text.length);
    requireText(this.#text.length + text.length);
    this.#text += text;
  }
}

function renderBlock(block: Block, scope: Scope, out: Output): LoopFlow {
  for (const statement of block) {
    const flow = renderStatement(statement, scope, out);
    if (flow) return flow;
  }
}

function renderStatement(node: Statement, scope: Scope, out: Output): LoopFlow {
  spend(1);
  switch (node.kind) {
    case "data":
      return out.write(node.text);
    case "print":
      return out.write(str(evaluate(node.value, scope)));
    case "if":
      return renderBlock(
        truth(evaluate(node.test, scope)) ? node.then : node.otherwise,
        scope,
        out,
      );
    case "for":
      return runLoop(node, scope, evaluate(node.of, scope), loopParts(node, scope, out));
    case "set":
      return assign(node.target, evaluate(node.value, scope), scope);
    case "setBlock":
      return assign(node.target, filtered(node.filter, node.body, scope), scope);
    case "with":
      return renderWith(node, scope, out);
    case "scope":
      return out.write(blockText(node.body, new Scope(scope)));
    case "macro":
      return scope.set(node.macro.name, macro(node.macro, scope));
    case "callBlock":
      return out.write(str(callBlock(node, scope)));
    case "filterBlock":
      return out.write(str(filtered(node.filter, node.body, scope)));
    case "break":
    case "continue":
      return node.kind;
  }
}

function loopParts(node: Statement & { kind: "for" }, scope: Scope, out: Output): LoopParts {
  return {
    body: (scope) => renderBlock(node.body, scope, out),
    otherwise: () => renderBlock(node.otherwise, new Scope(scope), out),
    capture: (run) => capture((out) => void run(loopParts(node, scope, out))),
  };
}

/** Runs a block with an output of its own. */
function capture(run: (out: Output) => void): string {
  const out = new Output();
  run(out);
  return out.text;
}

function blockText(body: Block, scope: Scope): string {
  return capture((out) => renderBlock(body, scope, out));
}

/** The text of a block after filters. */
function filtered(filters: readonly Application[], body: Block, scope: Scope): Value {
  const text: Value = blockText(body, new Scope(scope));
  return filters.reduce<Value>((value, filter) => applyFilter(value, filter, scope), text);
}

function renderWith(
  { values, body }: Statement & { kind: "with" },
  scope: Scope,
  out: Output,
): LoopFlow {
  const inner = new Scope(scope);
  for (const [target, value] of values) assign(target, evaluate(value, scope), inner);
  return renderBlock(body, inner, out);
}

/** A macro as a function; it reads the names around its definition as they are when it is called. */
function macro(node: MacroBody, scope: Scope): Callable {
  return new Callable(node.name, (args, keywords) => {
    const inner = new Scope(scope);
    bindParameters(node, args, keywords, inner);
    return blockText(node.body, inner);
  });
}

function bindParameters(
  { name, parameters, special }: MacroBody,
  args: readonly Value[],
  keywords: Keywords,
  scope: Scope,
): void {
  const left = new Map(keywords);
  for (const [i, { name: parameter, initial }] of parameters.entries()) {
    const named = left.get(parameter);
    left.delete(parameter);
    if (named !== undefined && i < args.length) {
      throw typeError(`macro '${name}' got multiple values for argument '${parameter}'`);
    }
    const given = i < args.length ? args[i] : named;
    const missing = () =>
      initial
        ? evaluate(initial, scope)
        : new Undefined(`parameter '${parameter}' was not provided`);
    scope.set(parameter, given === undefined ? missing() : given);
  }
  if (special.has("caller")) {
    scope.set("caller", left.get("caller") ?? new Undefined("No caller defined"));
    left.delete("caller");
  }
  if (special.has("kwargs")) scope.set("kwargs", new Dict(left));
  else if (left.size > 0) {
    throw typeError(`macro '${name}' takes no keyword argument '${[...left.keys()][0]}'`);
  }
  if (special.has("varargs")) scope.set("varargs", new Tuple(args.slice(parameters.length)));
  else if (args.length > parameters.length) {
    throw typeError(`macro '${name}' takes not more than ${parameters.length} argument(s)`);
  }
}

/** Calls a macro that may call the block back. */
function callBlock({ call: node, caller }: Statement & { kind: "callBlock" }, scope: Scope): Value {
  if (node.kind !== "call") throw new Error("a call block must call something");
  const { args, keywords } = evaluateArguments(node.args, scope);
  const named = new Map(keywords).set("caller", macro(caller, scope));
  return call(evaluate(node.of, scope), args, named);
}
