/**
 * Parses the statements of a template. The tree is that of Jinja2 with its extension for loop controls
 * and the `generation` tag of transformers; tags that need other templates are refused by name.
 */
import {
  parseArguments,
  parseExpression,
  parseFilter,
  parseOr,
  parsePrimary,
  parseTuple,
} from "./expressions.ts";
import { tokenize } from "./lexer.ts";
import type {
  Application,
  Argument,
  Block,
  Expression,
  MacroBody,
  Parameter,
  Statement,
  Target,
} from "./syntax.ts";
import { TokenStream } from "./token_stream.ts";

const SPECIAL = ["varargs", "kwargs", "caller"];

/** The statements of a template. @throws {Error} for a text that is not a template, or not supported */
export function parseTemplate(template: string): Block {
  return new Parser(new TokenStream(tokenize(template))).whole();
}

class Parser {
  #loops = 0;

  constructor(private readonly stream: TokenStream) {}

  whole(): Block {
    const body = this.#until([]);
    if (this.stream.current) throw this.stream.unexpected("end of template");
    return body;
  }

  /** Statements up to a tag of these names, of which the name is next. */
  #until(ends: readonly string[]): Block {
    const { stream } = this, body: Statement[] = [];
    while (stream.current) {
      if (stream.is("data")) body.push({ kind: "data", text: stream.expect("data") });
      else if (stream.skip("open")) {
        body.push({ kind: "print", value: parseTuple(stream) });
        stream.expect("close");
      } else {
        stream.expect("begin");
        if (ends.some((name) => stream.is("name", name))) return body;
        body.push(this.#statement());
      }
    }
    if (ends.length > 0) throw new Error(`the tag ${ends.join(" or ")} is missing`);
    return body;
  }

  /** Statements up to `{% end %}`, which is taken. */
  #body(end: string): Block {
    this.stream.expect("end");
    const body = this.#until([end]);
    this.#close(end);
    return body;
  }

  /** Statements with an output of their own, which no `break` may leave. */
  #captured(end: string): Block {
    const loops = this.#loops;
    this.#loops = 0;
    const body = this.#body(end);
    this.#loops = loops;
    return body;
  }

  #close(end: string): void {
    this.stream.expect("name", end);
    this.stream.expect("end");
  }

  #statement(): Statement {
    const name = this.stream.expect("name");
    switch (name) {
      case "if":
        return this.#if();
      case "for":
        return this.#for();
      case "set":
        return this.#set();
      case "with":
        return this.#with();
      case "macro":
        return this.#macro();
      case "call":
        return this.#call();
      case "filter":
        return this.#filter();
      case "print": {
        const value = parseTuple(this.stream);
        this.stream.expect("end");
        return { kind: "print", value };
      }
      case "generation":
        return { kind: "scope", body: this.#captured("endgeneration") };
      case "break":
      case "continue":
        if (this.#loops === 0) throw new Error(`'${name}' outside of a loop`);
        this.stream.expect("end");
        return { kind: name };
    }
    throw new Error(`the tag '${name}' is not supported`);
  }

  #if(): Statement {
    const test = parseTuple(this.stream, parseOr);
    this.stream.expect("end");
    const then = this.#until(["elif", "else", "endif"]);
    if (this.stream.skip("name", "elif")) {
      return { kind: "if", test, then, otherwise: [this.#if()] };
    }
    const otherwise = this.stream.skip("name", "else") ? this.#else(["endif"]) : [];
    this.#close("endif");
    return { kind: "if", test, then, otherwise };
  }

  #else(ends: readonly string[]): Block {
    this.stream.expect("end");
    return this.#until(ends);
  }

  #for(): Statement {
    const { stream } = this;
    const target = this.#target();
    stream.expect("name", "in");
    const of = parseTuple(stream, parseOr);
    const where = stream.skip("name", "if") ? parseExpression(stream) : undefined;
    const isRecursive = stream.skip("name", "recursive");
    stream.expect("end");
    this.#loops++;
    const body = this.#until(["endfor", "else"]);
    this.#loops--;
    const otherwise = stream.skip("name", "else") ? this.#else(["endfor"]) : [];
    this.#close("endfor");
    return { kind: "for", target, of, where, isRecursive, body, otherwise };
  }

  #set(): Statement {
    const { stream } = this;
    const target = this.#target();
    if (stream.skip("operator", "=")) {
      const value = parseTuple(stream);
      stream.expect("end");
      return { kind: "set", target, value };
    }
    const filter = this.#filters();
    return { kind: "setBlock", target, filter, body: this.#captured("endset") };
  }

  #filters(): Application[] {
    const filters: Application[] = [];
    while (this.stream.skip("operator", "|")) filters.push(parseFilter(this.stream));
    return filters;
  }

  #with(): Statement {
    const { stream } = this, values: (readonly [Target, Expression])[] = [];
    while (!stream.is("end")) {
      if (values.length > 0) stream.expect("operator", ",");
      const target = toTarget(parsePrimary(stream));
      stream.expect("operator", "=");
      values.push([target, parseExpression(stream)]);
    }
    return { kind: "with", values, body: this.#body("endwith") };
  }

  #target(): Target {
    const { stream } = this;
    if (stream.is("name") && stream.is("operator", ".", 1)) {
      const namespace = stream.expect("name");
      stream.expect("operator", ".");
      return { kind: "field", namespace, name: stream.expect("name") };
    }
    return toTarget(parseTuple(stream, parsePrimary));
  }

  #macro(): Statement {
    const name = this.stream.expect("name");
    const parameters = this.#parameters();
    return { kind: "macro", macro: this.#macroBody(name, parameters, "endmacro") };
  }

  #call(): Statement {
    const parameters = this.stream.is("operator", "(") ? this.#parameters() : [];
    const call = parseExpression(this.stream);
    if (call.kind !== "call") throw new Error("a call block must call something");
    return { kind: "callBlock", call, caller: this.#macroBody("caller", parameters, "endcall") };
  }

  #macroBody(name: string, parameters: readonly Parameter[], end: string): MacroBody {
    const body = this.#captured(end);
    return { name, parameters, body, special: namesIn(body, SPECIAL) };
  }

  #parameters(): Parameter[] {
    const parameters = parseArguments(this.stream).map(toParameter);
    if (new Set(parameters.map(({ name }) => name)).size < parameters.length) {
      throw new Error("a macro has two parameters of one name");
    }
    const first = parameters.findIndex(({ initial }) => initial);
    if (first >= 0 && parameters.slice(first).some(({ initial }) => !initial)) {
      throw new Error("non-default argument follows default argument");
    }
    return parameters;
  }

  #filter(): Statement {
    const filter = [parseFilter(this.stream), ...this.#filters()];
    return { kind: "filterBlock", filter, body: this.#captured("endfilter") };
  }
}

function toTarget(value: Expression): Target {
  if (value.kind === "name") return { kind: "name", name: value.name };
  if (value.kind === "tuple" || value.kind === "list") {
    return { kind: "targets", targets: value.items.map(toTarget) };
  }
  throw new Error(`cannot assign to ${value.kind === "constant" ? "a constant" : "an expression"}`);
}

function toParameter({ value, name, spread }: Argument): Parameter {
  if (spread) throw new Error("a macro has no spread parameters");
  if (name !== undefined) return { name, initial: value };
  if (value.kind === "name") return { name: value.name, initial: undefined };
  throw new Error("a parameter of a macro is a name");
}

/** Returns which of some names are read anywhere in a tree. */
function namesIn(tree: unknown, names: readonly string[]): ReadonlySet<string> {
  const found = new Set<string>();
  const visit = (node: unknown): void => {
    if (typeof node !== "object" || node === null) return;
    const { kind, name } = node as { kind?: unknown; name?: unknown };
    if (kind === "name" && names.includes(name as string)) found.add(name as string);
    for (const part of Object.values(node)) visit(part);
  };
  visit(tree);
  return found;
}
