/**
 * Program → program transformations that keep the meaning.
 *
 * A device calls `prepare`: model ops it cannot run whole are expanded into simpler ones, chains of
 * views become one view, equal nodes (the causal mask of every layer, say) are computed once, sums of
 * scattered entries are scattered straight into the other term, and unread nodes are dropped.
 */
import { Builder } from "./builder.ts";
import * as p from "./primitives.ts";
import { isNode, type Node, type Op, type Program } from "./program.ts";
import type { Value } from "./value.ts";

/** Expands, shares and prunes a program for a device that runs the ops `runs` accepts. */
export function prepare(program: Program, runs: (op: Op) => boolean): Program {
  return dropUnread(scatterIntoSum(shareEqual(expand(program, runs))));
}

/**
 * Replaces every op that `runs` refuses by its decomposition, repeatedly.
 * @throws {TypeError} when a refused op is a primitive
 */
export function expand(program: Program, runs: (op: Op) => boolean): Program {
  let current = program;
  while (current.nodes.some((node) => !runs(node.op))) {
    current = rebuild(current, (g, node, inputs) => {
      if (runs(node.op)) return g.apply(node.op, inputs, node.attributes);
      if (!node.op.decompose) throw new TypeError(`cannot run primitive "${node.op.name}"`);
      return node.op.decompose(g, inputs, node.attributes);
    });
  }
  return current;
}

/**
 * Computes nodes with the same op, inputs and attributes once. A view of a view of the same kind looks at
 * the source itself.
 */
export function shareEqual(program: Program): Program {
  const seen = new Map<string, readonly Value[]>();
  const views = new Map<Value, { readonly op: Op; readonly source: Value }>();
  return rebuild(program, (g, { op, attributes }, inputs) => {
    // A node that writes into its input is an action, not a value: two of them are not one.
    if (op.memory === "required") return g.apply(op, inputs, attributes);
    const isView = op.memory === "view", inner = isView ? views.get(inputs[0]!) : undefined;
    const operands = inner?.op === op ? [inner.source] : inputs;
    const key = `${op.name}(${operands.map(({ id }) => id)})${JSON.stringify(attributes)}`;
    const outputs = seen.getOrInsertComputed(key, () => g.apply(op, operands, attributes));
    if (isView) views.set(outputs[0]!, { op, source: operands[0]! });
    return outputs;
  });
}

/**
 * a + scatter_add(0, i, u) = scatter_add(a, i, u): the gradient of a tied embedding table, where two
 * arrays of the table's size are saved. Not where a is a state tensor: it would be copied, and its sum
 * rounded in another order.
 */
export function scatterIntoSum(program: Program): Program {
  if (!program.nodes.some((node) => isNode(node, p.scatterAdd))) return program;
  const states = new Set(program.state.values());
  const makers = new Map<Value, Node>();
  const isZero = (value: Value): boolean => {
    const maker = makers.get(value);
    if (isNode(maker, p.broadcast)) return isZero(maker.inputs[0]);
    return isNode(maker, p.constant) && maker.attributes.data.every((x) => x === 0);
  };
  return rebuild(program, (g, node, inputs) => {
    const current = { ...node, inputs };
    let outputs: readonly Value[] | undefined;
    if (isNode(current, p.add) && !node.inputs.some((input) => states.has(input))) {
      const [a, b] = current.inputs;
      for (const [term, other] of [[b, a], [a, b]] as const) {
        const scatter = makers.get(term);
        if (!isNode(scatter, p.scatterAdd) || outputs) continue;
        const [zeros, indices, update] = scatter.inputs;
        if (!isZero(zeros) || term.shape.join() !== other.shape.join()) continue;
        outputs = [other.scatterAdd(indices, update, scatter.attributes.axis)];
      }
    }
    outputs ??= g.apply(node.op, inputs, node.attributes);
    makers.set(outputs[0]!, { ...current, outputs });
    return outputs;
  });
}

/** Drops nodes that reach no output and no update. */
export function dropUnread(program: Program): Program {
  const read = new Set([...program.outputs.values(), ...program.updates.values()]);
  const kept: Node[] = [];
  for (const node of program.nodes.toReversed()) {
    if (!node.outputs.some((value) => read.has(value))) continue;
    node.inputs.forEach((value) => read.add(value));
    kept.push(node);
  }
  return { ...program, nodes: kept.toReversed() };
}

/** Maps values of a program to those of its copy. */
export interface Names {
  readonly get: (old: Value) => Value;
  /** Sets the copy of a value, in place of the result of its node. */
  readonly set: (old: Value, value: Value) => void;
}

/** Copies a program, letting `visit` decide what each node becomes. */
export function rebuild(
  program: Program,
  visit: (g: Builder, node: Node, inputs: readonly Value[], names: Names) => readonly Value[],
): Program {
  const g = new Builder(program.name);
  const renamed = new Map<Value, Value>();
  const told = new Set<Value>();
  const get = (old: Value) => {
    const value = renamed.get(old);
    if (!value) {
      throw new TypeError(`cannot rewrite ${program.name}: value ${old.id} has no origin`);
    }
    return value;
  };
  const set = (old: Value, value: Value) => {
    renamed.set(old, value);
    told.add(old);
  };
  for (const [name, value] of program.inputs) renamed.set(value, g.input(name, value));
  for (const [name, value] of program.parameters) renamed.set(value, g.parameter(name, value));
  for (const [name, value] of program.state) renamed.set(value, g.state(name, value));
  for (const node of program.nodes) {
    const outputs = visit(g, node, node.inputs.map(get), { get, set });
    node.outputs.forEach((old, i) => told.has(old) || renamed.set(old, outputs[i]!));
  }
  for (const [name, value] of program.updates) g.update(name, get(value));
  for (const [name, value] of program.outputs) g.output(name, get(value));
  return g.build();
}
