/** `for`: iteration, the `loop` variable, and recursion. */
import { assign, evaluate } from "./evaluate.ts";
import { spend, spendItems } from "./meter.ts";
import { Scope } from "./scope.ts";
import { bind, signature } from "./signature.ts";
import type { Statement } from "./syntax.ts";
import {
  Callable,
  equal,
  iterate,
  type Loop,
  PythonError,
  truth,
  Tuple,
  Undefined,
  type Value,
} from "./values.ts";

/** End of a block: at its end, or at a statement for the loop around it. */
export type LoopFlow = "break" | "continue" | void;

/** Parts of a loop. */
export interface LoopParts {
  body(scope: Scope): LoopFlow;
  otherwise(): LoopFlow;
  /** Runs with an output of its own and returns its text. */
  capture(run: (parts: LoopParts) => void): string;
}

type For = Statement & { readonly kind: "for" };

/** Runs a loop over a value. */
export function runLoop(
  node: For,
  scope: Scope,
  value: Value,
  parts: LoopParts,
  depth = 1,
): LoopFlow {
  const items = chosen(node, scope, iterate(value));
  if (items.length === 0) return parts.otherwise();
  const recurse = node.isRecursive
    ? bind(
      "loop",
      signature("iterable", (_: null, inner: Value) =>
        parts.capture((parts) =>
          runLoop(node, scope, inner, parts, depth + 1)
        )),
      null,
    )
    : undefined;
  const loop = new LoopState(items, depth, recurse);
  for (const one of items) {
    spend(1);
    const inner = new Scope(scope, [["loop", loop]]);
    assign(node.target, one, inner);
    if (parts.body(inner) === "break") return;
    loop.index++;
  }
}

/** Items that pass the condition of the loop. */
function chosen({ where, target }: For, scope: Scope, items: readonly Value[]): readonly Value[] {
  if (!where) return items;
  return items.filter((one) => {
    const inner = new Scope(scope);
    assign(target, one, inner);
    return truth(evaluate(where, inner));
  });
}

/** Attributes of `loop` in the body. */
class LoopState implements Loop {
  readonly isLoop = true;
  index = 0;
  #seen: Value | undefined;

  constructor(
    private readonly items: readonly Value[],
    private readonly depth: number,
    readonly recurse: Callable | undefined,
  ) {}

  attribute(name: string): Value | undefined {
    const { index, items, depth } = this, { length } = items;
    switch (name) {
      case "index":
        return BigInt(index + 1);
      case "index0":
        return BigInt(index);
      case "revindex":
        return BigInt(length - index);
      case "revindex0":
        return BigInt(length - index - 1);
      case "first":
        return index === 0;
      case "last":
        return index === length - 1;
      case "length":
        return BigInt(length);
      case "depth":
        return BigInt(depth);
      case "depth0":
        return BigInt(depth - 1);
      case "previtem":
        return index > 0 ? items[index - 1] : new Undefined("there is no previous item");
      case "nextitem":
        return index + 1 < length ? items[index + 1] : new Undefined("there is no next item");
      case "cycle":
        return new Callable(name, (values) => this.#cycle(values));
      case "changed":
        return new Callable(name, (values) => this.#changed(values));
    }
  }

  #cycle(values: readonly Value[]): Value {
    if (values.length === 0) throw new PythonError("TypeError", "no items for cycling given");
    return values[this.index % values.length]!;
  }

  #changed(values: readonly Value[]): boolean {
    spendItems(values.length);
    const now = new Tuple(values);
    if (this.#seen !== undefined && equal(this.#seen, now)) return false;
    this.#seen = now;
    return true;
  }
}
