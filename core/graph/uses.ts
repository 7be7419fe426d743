/** Makers and readers of the values of a program, for fusions. */
import type { Node, Program } from "./program.ts";
import type { Value } from "./value.ts";

export class Uses {
  readonly #makers = new Map<Value, Node>();
  readonly #readers = new Map<Value, Node[]>();
  readonly #order = new Map<Node, number>();
  readonly #results: ReadonlySet<Value>;

  constructor(program: Program) {
    program.nodes.forEach((node, place) => {
      this.#order.set(node, place);
      for (const value of node.outputs) this.#makers.set(value, node);
      for (const value of new Set(node.inputs)) {
        this.#readers.getOrInsertComputed(value, () => []).push(node);
      }
    });
    this.#results = new Set([...program.outputs.values(), ...program.updates.values()]);
  }

  /** The node that computes a value; undefined where it is given. */
  maker(value: Value): Node | undefined {
    return this.#makers.get(value);
  }

  /** The nodes that read a value, in order. */
  readers(value: Value): readonly Node[] {
    return this.#readers.get(value) ?? [];
  }

  /** Returns whether a value is an output or the new content of a state. */
  isResult(value: Value): boolean {
    return this.#results.has(value);
  }

  /** Place of a node in the program. */
  place(node: Node): number {
    return this.#order.get(node)!;
  }

  /** Returns whether a node comes after another. */
  isAfter(node: Node, other: Node): boolean {
    return this.place(node) > this.place(other);
  }
}
