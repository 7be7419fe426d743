/** Finds state tensors that may be updated in place, and checks the order that this needs. */
import { assign } from "../../../graph/primitives.ts";
import { isNode, type Node, type Program } from "../../../graph/program.ts";
import type { Value } from "../../../graph/value.ts";
import { gatedDelta } from "../../../ops/gated_delta.ts";

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

/** The nodes that read each of some values. */
function readersOf(nodes: readonly Node[], values: Iterable<Value>): ReadonlyMap<Value, Node[]> {
  const readers = new Map([...values].map((value) => [value, [] as Node[]]));
  for (const node of nodes) {
    for (const input of new Set(node.inputs)) readers.get(input)?.push(node);
  }
  return readers;
}

/** Returns whether a node makes a value, or the term that a value assigns: no search is needed for these. */
function leadsTo(node: Node, value: Value, writers: ReadonlyMap<Value, Node>): boolean {
  const writer = writers.get(value);
  return node === writer || writer?.inputs.some((input) => writers.get(input) === node) === true;
}

/**
 * The library runs nodes in an order of its own, so what overwrites a state tensor must depend on
 * everything else that reads it; coming later in the program is not enough. Breaking this gives
 * silently wrong numbers.
 */
export function requireReadersFirst(program: Program, writers: ReadonlyMap<Value, Node>): void {
  const { name, nodes, state, updates } = program;
  const readers = readersOf(nodes, state.values());
  for (const [tensor, value] of updates) {
    const others = readers.get(state.get(tensor)!)!.filter((node) =>
      !leadsTo(node, value, writers)
    );
    if (others.length === 0) continue;
    const before = ancestors(value, writers);
    if (others.every((node) => before.has(node))) continue;
    throw new TypeError(`cannot run ${name}: "${tensor}" may be overwritten before it is read`);
  }
}

/**
 * Updates whose value can be computed in the state's own memory, which saves a copy: those of an
 * elementwise node, or of one that copies the state before it changes it, before which, or by which,
 * everything else that reads the state has run.
 */
export function directUpdates(program: Program, writers: ReadonlyMap<Value, Node>) {
  const direct = new Map<string, { assigned: Value; source: Value }>();
  const leaving = new Set(program.outputs.values());
  const readers = readersOf(program.nodes, program.state.values());
  for (const [name, assigned] of program.updates) {
    const writer = writers.get(assigned);
    if (!isNode(writer, assign)) continue;
    const [, source] = writer.inputs;
    const maker = writers.get(source);
    if (maker?.op.memory !== "allowed" && maker?.op !== gatedDelta.op) continue;
    if (leaving.has(source) || leaving.has(assigned)) continue;
    const others = readers.get(program.state.get(name)!)!.filter((node) =>
      node !== writer && node !== maker
    );
    if (others.length > 0) {
      const before = ancestors(source, writers);
      if (!others.every((node) => before.has(node))) continue;
    }
    direct.set(name, { assigned, source });
    leaving.add(source);
  }
  return direct;
}
