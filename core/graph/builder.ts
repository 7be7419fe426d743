/**
 * Writes a program node by node.
 *
 * Ops are applied through the methods of values and the functions of `core/ops`; they call `apply` here,
 * which runs the shape rule at once, so a shape mistake is reported where it was made.
 */
import { constant, iota } from "./primitives.ts";
import type { Node, Program } from "./program.ts";
import {
  type Attributes,
  type DType,
  formatType,
  type Primitive,
  type TensorType,
} from "./types.ts";
import { type Graph, Value } from "./value.ts";

/** Collects nodes and names; `build` returns the finished program. */
export class Builder implements Graph {
  readonly #name: string;
  readonly #nodes: Node[] = [];
  readonly #inputs = new Map<string, Value>();
  readonly #parameters = new Map<string, Value>();
  readonly #state = new Map<string, Value>();
  readonly #updates = new Map<string, Value>();
  readonly #outputs = new Map<string, Value>();
  #nextId = 0;

  /** Starts an empty program; the name appears in messages and profiles. */
  constructor(name: string) {
    this.#name = name;
  }

  /** Declares a tensor that is given at every run. */
  input(name: string, type: TensorType): Value {
    return this.#declare(this.#inputs, name, type);
  }

  /** Declares a weight. Asking for the same name again returns the same value (tied weights). */
  parameter(name: string, type: TensorType): Value {
    return this.#parameters.get(name) ?? this.#declare(this.#parameters, name, type);
  }

  /** Declares a tensor that lives on between runs. */
  state(name: string, type: TensorType): Value {
    return this.#declare(this.#state, name, type);
  }

  /** Makes `value` the new content of a state tensor, in the state's own memory. */
  update(name: string, value: Value): void {
    const state = this.#state.get(name);
    if (!state) throw new TypeError(`cannot update "${name}": no such state in ${this.#name}`);
    if (formatType(state) !== formatType(value)) {
      throw new TypeError(
        `cannot update "${name}" of ${formatType(state)} with ${formatType(value)}`,
      );
    }
    this.#updates.set(name, value);
  }

  /** Names a result. */
  output(name: string, value: Value): void {
    if (this.#outputs.has(name)) throw new TypeError(`cannot name output "${name}" twice`);
    this.#outputs.set(name, value);
  }

  /** Appends a node and returns its outputs, shapes inferred. */
  apply<A extends Attributes>(op: Primitive<A>, inputs: readonly Value[], attributes: A): Value[] {
    if (inputs.some(({ graph }) => graph !== this)) {
      throw new TypeError(
        `cannot apply "${op.name}" to values of another graph than ${this.#name}`,
      );
    }
    const outputs = op.infer(inputs, attributes).map((type) => this.#value(type));
    this.#nodes.push({ op, inputs, attributes, outputs } as Node);
    return outputs;
  }

  /** `apply` for an op with one output. */
  apply1<A extends Attributes>(op: Primitive<A>, inputs: readonly Value[], attributes: A): Value {
    const [output, ...rest] = this.apply(op, inputs, attributes);
    if (!output || rest.length) throw new TypeError(`cannot take one output of "${op.name}"`);
    return output;
  }

  constant(data: number | readonly number[], dtype: DType = "f32"): Value {
    const list = typeof data === "number" ? [data] : data;
    const shape = typeof data === "number" ? [] : [data.length];
    return this.apply1(constant, [], { dtype, shape, data: list });
  }

  iota(length: number): Value {
    return this.apply1(iota, [], { length });
  }

  /** The finished program. */
  build(): Program {
    return {
      name: this.#name,
      inputs: this.#inputs,
      parameters: this.#parameters,
      state: this.#state,
      updates: this.#updates,
      outputs: this.#outputs,
      nodes: this.#nodes,
    };
  }

  #declare(kind: Map<string, Value>, name: string, type: TensorType): Value {
    const taken = [this.#inputs, this.#parameters, this.#state].some((map) => map.has(name));
    if (taken) throw new TypeError(`cannot declare "${name}" twice in ${this.#name}`);
    const value = this.#value(type);
    kind.set(name, value);
    return value;
  }

  #value(type: TensorType): Value {
    return new Value(this, this.#nextId++, type);
  }
}
