/**
 * Program → programs that run one after the other and together do what it does.
 *
 * A device can then make ready several at once, such as pack the weights of each on a thread of its own.
 * What one part computes and a later one reads leaves the first as an output and enters the other as an
 * input of the same name. Where to cut depends on nodes and weights, never on sizes, so that programs
 * which differ in sizes alone have parts that do too.
 */
import type { Node, Program } from "./program.ts";
import { rebuild } from "./rewrite.ts";
import type { Value } from "./value.ts";

/** Options of a split. */
export interface SplitOptions {
  /** Parts wanted. */
  readonly parts: number;
  /** Cost of making a node ready; the parts share the sum. */
  readonly cost: (node: Node) => number;
  /** Most values that may cross a cut; a program where more would, as in training, is not split. */
  readonly most?: number;
}

/** Prefix of the names of values that pass from one part to a later one. */
export const PASSING = "passing.";

/** Largest distance of a part's cost from its share, in shares. */
const TOLERANCE = 0.25;

/** Splits a program; fewer parts come back where there is no good place for a cut. */
export function splitProgram(program: Program, options: SplitOptions): Program[] {
  const cuts = chooseCuts(program, options);
  if (cuts.length === 0) return [program];
  const { nodes } = program;
  const partOf = new Map<Value, number>();
  const passed = new Set<Value>();
  const bounds = [...cuts, nodes.length];
  nodes.forEach((node, place) => {
    const part = bounds.findIndex((end) => place < end);
    for (const value of node.inputs) if ((partOf.get(value) ?? part) < part) passed.add(value);
    for (const value of node.outputs) partOf.set(value, part);
  });
  const passing = new Map([...passed].map((value, i) => [`${PASSING}${i}`, value]));
  return bounds.map((end, part) => {
    const own = nodes.slice(bounds[part - 1] ?? 0, end);
    return buildPart(program, own, passing, (value) => partOf.get(value) === part);
  });
}

/** Some nodes of a program as one of their own. */
function buildPart(
  program: Program,
  nodes: readonly Node[],
  passing: ReadonlyMap<string, Value>,
  isMade: (value: Value) => boolean,
): Program {
  const read = new Set(nodes.flatMap(({ inputs }) => inputs));
  const isRead = (value: Value) => read.has(value);
  const only = (values: ReadonlyMap<string, Value>, isKept: (value: Value) => boolean) =>
    [...values].filter(([, value]) => isKept(value));
  const part = {
    name: program.name,
    inputs: new Map([
      ...only(program.inputs, isRead),
      ...only(passing, (value) => isRead(value) && !isMade(value)),
    ]),
    parameters: new Map(only(program.parameters, isRead)),
    state: new Map(only(program.state, isRead)),
    updates: new Map(only(program.updates, isMade)),
    outputs: new Map([...only(program.outputs, isMade), ...only(passing, isMade)]),
    nodes,
  };
  // With numbers of its own, which nothing in the other parts changes.
  return rebuild(part, (g, { op, attributes }, inputs) => g.apply(op, inputs, attributes));
}

/** Places of the nodes that begin a part, without the first. */
function chooseCuts(program: Program, { parts, cost, most = 16 }: SplitOptions): number[] {
  const { nodes } = program;
  const spent: number[] = [0];
  for (const node of nodes) spent.push(spent.at(-1)! + cost(node));
  const total = spent.at(-1)!;
  const crossing = crossings(program);
  const cuts: number[] = [];
  for (let part = 1; part < parts && total > 0; part++) {
    const distance = (place: number) => Math.abs(spent[place]! * parts / total - part);
    const places = [...nodes.keys()].filter((place) =>
      place > (cuts.at(-1) ?? 0) && distance(place) <= TOLERANCE && crossing[place]! <= most
    );
    const [best] = places.sort((a, b) => crossing[a]! - crossing[b]! || distance(a) - distance(b));
    if (best !== undefined) cuts.push(best);
  }
  return cuts;
}

/** Added where a value must not pass: a result, or a state that is used on both sides. */
const NEVER = 2 ** 40;

/** For a cut before each node, the number of values that pass it. */
function crossings({ nodes, state, outputs, updates }: Program): number[] {
  const last = new Map<Value, number>();
  nodes.forEach(({ inputs }, place) => inputs.forEach((value) => last.set(value, place)));
  const change = new Array<number>(nodes.length + 1).fill(0);
  const pass = (first: number, end: number, weight: number) => {
    change[first + 1]! += weight;
    change[end + 1]! -= weight;
  };
  const results = new Set([...outputs.values(), ...updates.values()]);
  nodes.forEach((node, place) => {
    for (const value of node.outputs) {
      pass(place, last.get(value) ?? place, results.has(value) ? NEVER : 1);
    }
  });
  for (const value of state.values()) {
    const first = nodes.findIndex(({ inputs }) => inputs.includes(value));
    if (first >= 0) pass(first, last.get(value)!, NEVER);
  }
  let sum = 0;
  return change.map((each) => sum += each);
}
