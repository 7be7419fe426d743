/** Syntax tree of a template. */
import type { Value } from "./values.ts";

/** An argument of a call; `spread` is "*" or "**" for those that stand for many. */
export interface Argument {
  readonly value: Expression;
  readonly name?: string;
  readonly spread?: "*" | "**";
}

/** Call of a filter or test on the value before it. */
export interface Application {
  readonly name: string;
  readonly args: readonly Argument[];
}

/** An expression. */
export type Expression =
  | { readonly kind: "constant"; readonly value: Value }
  | { readonly kind: "name"; readonly name: string }
  | { readonly kind: "list" | "tuple" | "concat"; readonly items: readonly Expression[] }
  | {
    readonly kind: "dict";
    readonly entries: readonly (readonly [Expression, Expression])[];
  }
  | {
    readonly kind: "conditional";
    readonly test: Expression;
    readonly then: Expression;
    readonly otherwise: Expression | undefined;
  }
  | {
    readonly kind: "binary";
    readonly operator: string;
    readonly left: Expression;
    readonly right: Expression;
  }
  | {
    readonly kind: "and" | "or";
    readonly left: Expression;
    readonly right: Expression;
  }
  | { readonly kind: "not" | "negative" | "positive"; readonly of: Expression }
  | {
    readonly kind: "compare";
    readonly first: Expression;
    readonly rest: readonly (readonly [operator: string, operand: Expression])[];
  }
  | { readonly kind: "attribute"; readonly of: Expression; readonly name: string }
  | { readonly kind: "item"; readonly of: Expression; readonly index: Expression }
  | {
    readonly kind: "slice";
    readonly of: Expression;
    readonly bounds: readonly (Expression | undefined)[];
  }
  | { readonly kind: "call"; readonly of: Expression; readonly args: readonly Argument[] }
  | { readonly kind: "filter"; readonly of: Expression; readonly apply: Application }
  | {
    readonly kind: "test";
    readonly of: Expression;
    readonly apply: Application;
    readonly isNegated: boolean;
  };

/** Target of an assignment: a name, a field of a namespace, or several of them. */
export type Target =
  | { readonly kind: "name"; readonly name: string }
  | { readonly kind: "field"; readonly namespace: string; readonly name: string }
  | { readonly kind: "targets"; readonly targets: readonly Target[] };

/** A parameter of a macro. */
export interface Parameter {
  readonly name: string;
  readonly initial: Expression | undefined;
}

/** Body of a macro or of a call block. */
export interface MacroBody {
  readonly name: string;
  readonly parameters: readonly Parameter[];
  readonly body: Block;
  /** Names of `varargs`, `kwargs` and `caller` that the body reads. */
  readonly special: ReadonlySet<string>;
}

/** A statement. */
export type Statement =
  | { readonly kind: "data"; readonly text: string }
  | { readonly kind: "print"; readonly value: Expression }
  | {
    readonly kind: "if";
    readonly test: Expression;
    readonly then: Block;
    readonly otherwise: Block;
  }
  | {
    readonly kind: "for";
    readonly target: Target;
    readonly of: Expression;
    readonly where: Expression | undefined;
    readonly isRecursive: boolean;
    readonly body: Block;
    readonly otherwise: Block;
  }
  | { readonly kind: "set"; readonly target: Target; readonly value: Expression }
  | {
    readonly kind: "setBlock";
    readonly target: Target;
    readonly filter: readonly Application[];
    readonly body: Block;
  }
  | {
    readonly kind: "with";
    readonly values: readonly (readonly [Target, Expression])[];
    readonly body: Block;
  }
  | { readonly kind: "macro"; readonly macro: MacroBody }
  | { readonly kind: "callBlock"; readonly call: Expression; readonly caller: MacroBody }
  | { readonly kind: "filterBlock"; readonly filter: readonly Application[]; readonly body: Block }
  | { readonly kind: "scope"; readonly body: Block }
  | { readonly kind: "break" | "continue" };

/** Statements one after the other. */
export type Block = readonly Statement[];
