/**
 * Reverse-mode differentiation: a program that computes a scalar becomes one that also computes its
 * gradients.
 *
 * Goes through the nodes from last to first. A primitive's rule builds the gradients of its inputs; a
 * model op leaves one node, "gradient of …", which a device may compute whole. What that node means
 * is, again, a decomposition: the op's own rule, or its reference meaning differentiated in turn. Only
 * nodes on a path from one of the chosen parameters to the scalar take part, so training a few
 * parameters builds little.
 *
 * With `recompute` the values between two `checkpoint` ops are not kept for the backward pass but
 * computed again when it gets there: less memory for about a third more work. How: the nodes of a
 * segment are copied, and the copy starts at a `recompute` op, which keeps the rewriting of equal
 * nodes from finding out that they are equal.
 */
import { Builder } from "./builder.ts";
import { DERIVATIVES } from "./derivatives.ts";
import type { Node, Op, Program } from "./program.ts";
import { expand } from "./rewrite.ts";
import { type Attributes, formatType, type Operands, type TensorType } from "./types.ts";
import type { Graph, Value } from "./value.ts";

/** Name of the output that holds the gradient of a parameter or input. */
export function gradientName(name: string): string {
  return `grad.${name}`;
}

/** Options of differentiation. */
export interface DifferentiateOptions {
  /** Name of an output with one element. */
  readonly of: string;
  /** Names of parameters or inputs. */
  readonly by: readonly string[];
  /** True to compute values between checkpoints again instead of keeping them. */
  readonly recompute?: boolean;
}

/** Marks x as the border of a segment whose inner values may be recomputed. */
export const checkpointOp: Op = {
  name: "checkpoint",
  infer: ([x]: readonly [TensorType]) => [x],
  decompose: (_, inputs) => inputs,
};

/** x itself; see `checkpointOp`. */
export function checkpoint(x: Value): Value {
  return x.graph.apply1(checkpointOp, [x], {});
}

/**
 * The program with an output `grad.<name>` for every name in `by`.
 * @throws {TypeError} when the scalar does not depend on one of them
 */
export function differentiate(whole: Program, options: DifferentiateOptions): Program {
  const { of, by, recompute } = options;
  const several = new Set(
    whole.nodes.filter((node) => node.outputs.length > 1).map(({ op }) => op),
  );
  const program = expand(whole, (op) => !several.has(op)); // a gradient is that of one output
  const scalar = program.outputs.get(of);
  if (!scalar || scalar.shape.join("") !== "") {
    throw new TypeError(`cannot differentiate ${scalar ? formatType(scalar) : `"${of}"`}`);
  }
  const variables = by.map((name) => {
    const value = program.parameters.get(name) ?? program.inputs.get(name);
    if (!value) throw new TypeError(`cannot differentiate by "${name}": no such parameter`);
    return value;
  });
  const g = new Builder(`gradients.${program.name}`);
  const { inputs, parameters, state, outputs, updates } = program;
  const copies = new Map<Value, Value>();
  for (const [name, value] of inputs) copies.set(value, g.input(name, value));
  for (const [name, value] of parameters) copies.set(value, g.parameter(name, value));
  for (const [name, value] of state) copies.set(value, g.state(name, value));
  const reverse = new ReverseMode(g, program, copies, recompute);
  for (const [name, value] of updates) g.update(name, copies.get(value)!);
  for (const [name, value] of outputs) g.output(name, copies.get(value)!);
  const gradients = reverse.run(scalar, g.constant(1), variables);
  by.forEach((name, i) => {
    const gradient = gradients[i];
    if (!gradient) {
      throw new TypeError(`cannot differentiate by "${name}": "${of}" does not use it`);
    }
    // A sum hands the same value to all its terms, and an output needs one of its own shape.
    const { shape } = variables[i]!;
    const whole = gradient.shape.join() === shape.join();
    g.output(gradientName(name), whole ? gradient : gradient.broadcast(shape));
  });
  return g.build();
}

/** Attributes of "gradient of …". */
export interface GradientAttributes extends Attributes {
  /** Attributes of the op itself. */
  readonly op: Attributes;
  /** Inputs whose gradients are wanted; they are the outputs, in this order. */
  readonly wanted: readonly number[];
}

/** Segment of inputs from which an op is computed again; other segments are counted from 0. */
const AGAIN = -1;

const gradientOps = new WeakMap<Op, Op<GradientAttributes>>();

/** The op that computes gradients of a model op from its inputs, its output and the upstream. */
export function gradientOp(op: Op): Op<GradientAttributes> {
  return gradientOps.getOrInsertComputed(op, () => ({
    name: `gradient of ${op.name}`,
    infer: (inputs, { wanted }) => wanted.map((i) => inputs[i]!),
    decompose(g, values, { op: attributes, wanted }) {
      const [given, outputs] = [values.slice(0, -2), values.slice(-2, -1)];
      const inputs = op.recomputes ? given.map((value) => value.recompute(AGAIN)) : given;
      const node = { op, inputs, outputs, attributes };
      const gradients = (op.vjp ?? throughDecomposition(wanted))(g, node, values.at(-1)!);
      return wanted.map((i) => {
        const gradient = gradients[i];
        if (gradient) return gradient;
        throw new TypeError(`cannot differentiate "${op.name}" by input ${i}: it has no gradient`);
      });
    },
  }));
}

/** The rule of an op without one of its own: its reference meaning, differentiated. */
function throughDecomposition(wanted: readonly number[]): Required<Op>["vjp"] {
  return (g, { op, inputs, attributes }, upstream) => {
    const inner = new Builder(op.name);
    const own = inputs.map((value, i) => inner.input(`${i}`, value));
    const [result] = op.decompose!(inner, own, attributes);
    const copies = new Map(own.map((value, i) => [value, inputs[i]!]));
    const variables = wanted.map((i) => own[i]!);
    const found = new ReverseMode(g, inner.build(), copies).run(result!, upstream, variables);
    const gradients: (Value | undefined)[] = [];
    wanted.forEach((input, i) => gradients[input] = found[i]);
    return gradients;
  };
}

/** Copies a program into a builder and goes back through it. */
class ReverseMode {
  readonly #g: Graph;
  readonly #source: Program;
  readonly #recomputes: boolean;
  /** From values of the source to those of the result. */
  readonly #forward: Map<Value, Value>;
  readonly #gradients = new Map<Value, Value>();
  /** Segment of each node, counted from 0. */
  readonly #segments: number[] = [];
  readonly #recomputed = new Map<number, Map<Value, Value>>();

  /** `copies` holds what the source starts from, and gets everything it computes. */
  constructor(g: Graph, source: Program, copies: Map<Value, Value>, recompute = false) {
    this.#g = g;
    this.#source = source;
    this.#forward = copies;
    this.#recomputes = recompute;
    let segment = 0;
    for (const node of source.nodes) {
      if (node.op === checkpointOp) segment++;
      this.#segments.push(segment);
      this.#copy(node, copies, copies);
    }
  }

  /** Gradients of `variables` from that of `result`; undefined where it does not depend on one. */
  run(result: Value, upstream: Value, variables: readonly Value[]): (Value | undefined)[] {
    const active = dependents(this.#source, new Set(variables));
    this.#gradients.set(result, upstream);
    for (let i = this.#source.nodes.length - 1; i >= 0; i--) this.#back(i, active);
    return variables.map((value) => this.#gradients.get(value));
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
    const kept = this.#kept(this.#segments[index]!);
    const inputs = node.inputs.map((value) => kept(value));
    const own: Node = { ...node, inputs, outputs: node.outputs.map((value) => kept(value)) };
    const wanted = [...node.inputs.keys()].filter((i) => active.has(node.inputs[i]!));
    const gradients = this.#gradientsOf(own, upstream, wanted);
    for (const i of wanted) {
      const [value, gradient] = [node.inputs[i]!, gradients[i]];
      if (!gradient) continue;
      const sofar = this.#gradients.get(value);
      this.#gradients.set(value, sofar ? sofar.add(gradient) : gradient);
    }
  }

  /** Gradients of a node's inputs by their number. */
  #gradientsOf(node: Node, upstream: Value, wanted: number[]): readonly (Value | undefined)[] {
    const { op, inputs, outputs, attributes } = node;
    if (!op.decompose) {
      const derivative = DERIVATIVES[op.name];
      return derivative?.(upstream, inputs as Operands<Value>, attributes, outputs[0]!) ?? [];
    }
    if (op === checkpointOp) return [upstream];
    const operands = [...inputs, ...outputs, upstream];
    const found = this.#g.apply(gradientOp(op), operands, { op: attributes, wanted });
    const gradients: (Value | undefined)[] = [];
    wanted.forEach((input, i) => gradients[input] = found[i]);
    return gradients;
  }

  /** Returns where the backward pass of a segment finds the values of the forward pass. */
  #kept(segment: number): (value: Value) => Value {
    const last = this.#segments.at(-1);
    if (!this.#recomputes || segment === last) return (value) => this.#forward.get(value)!;
    const copies = this.#recomputed.getOrInsertComputed(segment, () => this.#recompute(segment));
    return (value) => copies.get(value) ?? this.#forward.get(value)!;
  }

  #recompute(segment: number): Map<Value, Value> {
    const copies = new Map<Value, Value>();
    const from = { get: (value: Value) => copies.get(value) ?? this.#forward.get(value) };
    this.#source.nodes.forEach((node, index) => {
      if (this.#segments[index] !== segment) return;
      if (node.op !== checkpointOp) return this.#copy(node, from, copies);
      const border = this.#forward.get(node.outputs[0]!)!;
      copies.set(node.outputs[0]!, border.recompute(segment));
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
