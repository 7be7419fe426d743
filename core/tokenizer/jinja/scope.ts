/** Names and their values, block within block. */
import { Undefined, type Value } from "./values.ts";

/** Names of one block; those of the blocks around it are read through it. */
export class Scope {
  #names = new Map<string, Value>();

  constructor(
    private readonly outer: Scope | undefined,
    names: Iterable<readonly [string, Value]> = [],
  ) {
    for (const [name, value] of names) this.#names.set(name, value);
  }

  get(name: string): Value {
    let scope: Scope | undefined = this as Scope | undefined;
    for (; scope; scope = scope.outer) {
      const value = scope.#names.get(name);
      if (value !== undefined) return value;
    }
    return new Undefined(`'${name}' is undefined`);
  }

  set(name: string, value: Value): void {
    this.#names.set(name, value);
  }
}
