/**
 * Reverse-mode differentiation: a program that computes a scalar becomes one that also computes its
 * gradients.
 *
 * Goes through the nodes from last to first and asks each op for the gradients of its inputs; an op
 * that has no rule of its own is replaced by its decomposition first. Only nodes on a path from one
 * of the chosen parameters to the scalar take part, so training a few parameters builds little.
 *
 * With `recompute` the values between two `checkpoint` ops are not kept for the backward pass but
 * computed again when it gets there: less memory for about a third more work. The surprising part is
 * how: the nodes of a segment are copied, and the copy starts at a `recompute` op, which keeps the
 * rewriting of equal nodes from finding out that they are equal.
 */
import { Builder } from "./builder.ts";
import { DERIVATIVES } from "./derivatives.ts";
import { add, broadcast, constant, PRIMITIVES, recompute } from "./primitives.ts";
import { expand } from "./rewrite.ts";
import { formatType, type Node, type Op, type Program, type Value } from "./types.ts";

/** Name of the output that holds the gradient of a parameter or input. */
export function gradientName(name: string): string {
  return `grad.${name}`;
}

/** What to differentiate. */
export interface DifferentiateOptions {
  /** Name of an output with one element. */
  readonly of: string;
  /** Names of parameters or inputs. */
  readonly by: readonly string[];
  /** Whether to compute values between checkpoints again instead of keeping them. */
  readonly recompute?: boolean;
}

/** Marks x as the border of a segment whose inner values may be recomputed. */
export const checkpointOp: Op = {
  name: "checkpoint",
  infer: ([x]) => [x!],
  decompose: (_, [x]) => [x!],
  vjp: (_g, _node, upstream) => [upstream],
};

/** x itself; see `checkpointOp`. */
export function checkpoint(g: Builder, x: Value): Value {
  return g.apply1(checkpointOp, [x], {});
}

/**
 * The program with an output `grad.<name>` for every name in `by`.
 * @throws {TypeError} when the scalar does not depend on one of them
 */
export function differentiate(program: Program, options: DifferentiateOptions): Program {
  const expanded = expand(program, (op) => op.vjp !== undefined || PRIMITIVES.has(op.name));
  return new Differentiation(expanded, options).run();
}

class Differentiation {
  readonly #g: Builder;
  readonly #source: Program;
  readonly #options: DifferentiateOptions;
  /** From values of the source to those of the result. */
  readonly #forward = new Map<Value, Value>();
  readonly #gradients = new Map<Value, Value>();
  /** Segment of each node, counted from 0. */
  readonly #segments: number[] = [];
  readonly #recomputed = new Map<number, Map<Value, Value>>();

  constructor(source: Program, options: DifferentiateOptions) {
    this.#source = source;
    this.#options = options;
    this.#g = new Builder(`gradients.${source.name}`);
  }

  run(): Program {
    const { of, by } = this.#options;
    const scalar = this.#source.outputs.get(of);
    if (!scalar || scalar.shape.join("") !== "") {
      throw new TypeError(`Cannot differentiate ${scalar ? formatType(scalar) : `"${of}"`}`);
    }
    this.#copyForward();
    const variables = by.map((name) => this.#variable(name));
    const active = dependents(this.#source, new Set(variables));
    this.#gradients.set(scalar, constant(this.#g, 1));
    for (let i = this.#source.nodes.length - 1; i >= 0; i--) this.#back(i, active);
    by.forEach((name, i) => {
      const gradient = this.#gradients.get(variables[i]!);
      if (!gradient) {
        throw new TypeError(`Cannot differentiate by "${name}": "${of}" does not use it`);
      }
      // A sum hands the same value to all its terms, and an output needs one of its own shape.
      const { shape } = variables[i]!;
      const whole = gradient.shape.join() === shape.join();
      this.#g.output(gradientName(name), whole ? gradient : broadcast(this.#g, gradient, shape));
    });
    return this.#g.build();
  }

  #variable(name: string): Value {
    const value = this.#source.parameters.get(name) ?? this.#source.inputs.get(name);
    if (!value) throw new TypeError(`Cannot differentiate by "${name}": no such parameter`);
    return value;
  }

  #copyForward(): void {
    const { inputs, parameters, state, nodes, outputs, updates } = this.#source;
    const forward = this.#forward;
    for (const [name, value] of inputs) forward.set(value, this.#g.input(name, value));
    for (const [name, value] of parameters) forward.set(value, this.#g.parameter(name, value));
    for (const [name, value] of state) forward.set(value, this.#g.state(name, value));
    let segment = 0;
    for (const node of nodes) {
      if (node.op === checkpointOp) segment++;
      this.#segments.push(segment);
      this.#copy(node, forward, forward);
    }
    for (const [name, value] of updates) this.#g.update(name, forward.get(value)!);
    for (const [name, value] of outputs) this.#g.output(name, forward.get(value)!);
  }

  /** Applies a node of the source to values found in `from`, and enters its results in `into`. */
  #copy(node: Node, from: { get(value: Value): Value | undefined }, into: Map<Value, Value>): void {
    const inputs = node.inputs.map((value) => from.get(value)!);
    const outputs = this.#g.apply(node.op, inputs, node.attributes);
    node.outputs.forEach((value, i) => into.set(value, outputs[i]!));
  }

  /** Passes the gradient of a node's output on to its inputs. */
  #back(index: number, active: ReadonlySet<Value>): void {
    const node = this.#source.nodes[index]!;
    const [output] = node.outputs as [Value];
    const upstream = this.#gradients.get(output);
    if (!upstream || !active.has(output)) return;
    const derive = node.op.vjp ?? DERIVATIVES[node.op.name];
    if (!derive) return;
    const kept = this.#kept(this.#segments[index]!);
    const inputs = node.inputs.map((value) => kept(value));
    const own: Node = { ...node, inputs, outputs: node.outputs.map((value) => kept(value)) };
    const gradients = derive(this.#g, own, upstream);
    node.inputs.forEach((value, i) => {
      const gradient = gradients[i];
      if (!gradient || !active.has(value)) return;
      const sofar = this.#gradients.get(value);
      this.#gradients.set(value, sofar ? add(this.#g, sofar, gradient) : gradient);
    });
  }

  /** Where the backward pass of a segment finds the values of the forward pass. */
  #kept(segment: number): (value: Value) => Value {
    const last = this.#segments.at(-1);
    if (!this.#options.recompute || segment === last) return (value) => this.#forward.get(value)!;
    const copies = this.#recomputed.get(segment) ?? this.#recompute(segment);
    this.#recomputed.set(segment, copies);
    return (value) => copies.get(value) ?? this.#forward.get(value)!;
  }

  #recompute(segment: number): Map<Value, Value> {
    const copies = new Map<Value, Value>();
    const from = { get: (value: Value) => copies.get(value) ?? this.#forward.get(value) };
    this.#source.nodes.forEach((node, index) => {
      if (this.#segments[index] !== segment) return;
      if (node.op !== checkpointOp) return this.#copy(node, from, copies);
      const border = this.#forward.get(node.outputs[0]!)!;
      copies.set(node.outputs[0]!, recompute(this.#g, border, segment));
    });
    return copies;
  }
}

/** Every value that depends on one of `variables`, these included. */
function dependents(program: Program, variables: Set<Value>): ReadonlySet<Value> {
  const result = new Set(variables);
  for (const node of program.nodes) {
    if (!node.inputs.some((value) => result.has(value))) continue;
    for (const value of node.outputs) if (value.dtype === "f32") result.add(value);
  }
  return result;
}
