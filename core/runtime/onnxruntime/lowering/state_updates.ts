/** Where new contents of state tensors may be computed, and the order that this needs. */
import { assign } from "../../../graph/primitives.ts";
import { isNode, type Node, type Program } from "../../../graph/program.ts";
import type { Value } from "../../../graph/value.ts";

/** The node that makes each value. */
export function writersOf({ nodes }: Program): ReadonlyMap<Value, Node> {
  return new Map(nodes.flatMap((node) => node.outputs.map((value) => [value, node] as const)));
}

/** The node that makes a value, and all that come before it of necessity. */
function ancestors(value: Value, writers: ReadonlyMap<Value, Node>): ReadonlySet<Node> {
  const before = new Set<Node>();
  const waiting = [value];
  for (let next; (next = waiting.pop());) {
    const node = writers.get(next);
    if (!node || before.has(node)) continue;
    before.add(node);
    waiting.push(...node.inputs);
  }
  return before;
}

/**
 * The library runs nodes in an order of its own, so what overwrites a state tensor must depend on
 * everything else that reads it; coming later in the program is not enough. Breaking this gives
 * silently wrong numbers.
 */
export function requireReadersFirst(program: Program, writers: ReadonlyMap<Value, Node>): void {
  const { name, nodes, state, updates } = program;
  for (const [tensor, value] of updates) {
    const before = ancestors(value, writers);
    const buffer = state.get(tensor)!;
    if (nodes.every((node) => !node.inputs.includes(buffer) || before.has(node))) continue;
    throw new TypeError(`cannot run ${name}: "${tensor}" may be overwritten before it is read`);
  }
}

/**
 * Updates whose value can be computed in the state's own memory, which saves a copy: those of an
 * elementwise node before which, or by which, everything else that reads the state has run.
 */
export function directUpdates(program: Program, writers: ReadonlyMap<Value, Node>) {
  const direct = new Map<string, { assigned: Value; source: Value }>();
  const leaving = new Set(program.outputs.values());
  for (const [name, assigned] of program.updates) {
    const writer = writers.get(assigned);
    if (!isNode(writer, assign)) continue;
    const [, source] = writer.inputs;
    if (writers.get(source)?.op.memory !== "allowed") continue;
    if (leaving.has(source) || leaving.has(assigned)) continue;
    const before = ancestors(source, writers);
    const buffer = program.state.get(name)!;
    const readers = program.nodes.filter((node) => node !== writer && node.inputs.includes(buffer));
    if (!readers.every((node) => before.has(node))) continue;
    direct.set(name, { assigned, source });
    leaving.add(source);
  }
  return direct;
}
