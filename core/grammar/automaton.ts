/**
 * The states that texts of a grammar may be in, made as texts come to them.
 *
 * A state is a set of places: a node of the network, and a stack of calls and loops that are open. Loops
 * count on the stack. States and stacks are numbered, so that equal ones are the same.
 */
import type { Character } from "./expression.ts";
import type { Network, Split } from "./network.ts";

/** Most places of a state: further ones of a grammar that is ambiguous beyond it are left out. */
const MAX_PLACES = 65_536;

/** Place of nothing on a stack. */
const EMPTY = 0;

/** Factor that makes one number of two. */
const PAIR = 2 ** 26;

/** The state that no text is in. */
export const DEAD = 0;

/** A repeated character of a string that a text is within. */
export interface Run {
  /** Node of the character. */
  readonly node: number;
  /** Most times that the character may still come. */
  readonly left: number;
}

interface State {
  readonly nodes: Uint32Array;
  readonly stacks: Uint32Array;
  readonly isComplete: boolean;
  /** Next state by class of byte; −1 where it was not made yet. */
  readonly next: Int32Array;
}

/** A node to come back to, or a loop with the number of times that its body was begun. */
interface Frame {
  readonly node: number;
  readonly count: number;
  readonly below: number;
}

export class Automaton {
  readonly start: number;
  /** Number of places visited so far. */
  work = 0;
  #size = 0;
  /** First and last byte of nodes that read one; zero for others, as no text has a byte of zero. */
  readonly #bytes: Uint16Array;
  readonly #nexts: Uint32Array;
  readonly #classOf = new Uint8Array(256);
  readonly #byteOf: number[] = [];
  readonly #states: State[] = [];
  readonly #statesOf = new Map<number, number[]>();
  readonly #frames: Frame[] = [{ node: 0, count: 0, below: 0 }];
  readonly #heads = new Map<number, number>();
  readonly #stackOf = new Map<number, number>();
  readonly #clamped = new Map<number, number>();

  /** `longest`: bytes of a token. */
  constructor(private readonly network: Network, private readonly longest: number) {
    const { nodes } = network;
    this.#bytes = Uint16Array.from(
      nodes,
      (node) => node.kind === "byte" ? node.first | node.last << 8 : 0,
    );
    this.#nexts = Uint32Array.from(nodes, (node) => node.kind === "byte" ? node.next : 0);
    this.#classifyBytes();
    this.#state([], [], false);
    this.start = this.#settle([network.start], [EMPTY]);
  }

  /** Characters of JSON strings by their nodes. */
  get characters(): ReadonlyMap<number, Character> {
    return this.network.characters;
  }

  /** Bytes that it takes, about. */
  get size(): number {
    return this.#size;
  }

  /** True where a text may end. */
  isComplete(state: number): boolean {
    return this.#states[state]!.isComplete;
  }

  /** The state behind a byte. */
  step(state: number, byte: number): number {
    const { next } = this.#states[state]!;
    const known = next[this.#classOf[byte]!]!;
    return known >= 0 ? known : this.#step(state, this.#classOf[byte]!);
  }

  /** The first run of a state, with the most that any place of it leaves. */
  run(state: number): Run | undefined {
    const { nodes, stacks } = this.#states[state]!;
    const node = nodes.find((node, i) => this.#leftAt(node, stacks[i]!) > 0);
    if (node === undefined) return undefined;
    let left = 0;
    for (let i = 0; i < nodes.length; i++) {
      if (nodes[i] === node) left = Math.max(left, this.#leftAt(node, stacks[i]!));
    }
    return { node, left };
  }

  /** The same state without the run of a character. */
  withoutRun(state: number, node: number): number {
    const { nodes, stacks } = this.#states[state]!;
    const kept = [...nodes.keys()].filter((i) =>
      nodes[i] !== node || this.#leftAt(node, stacks[i]!) === 0
    );
    return this.#state(kept.map((i) => nodes[i]!), kept.map((i) => stacks[i]!), false);
  }

  /**
   * A state that allows the same tokens, but for those of the run alone: counts that no token can bring to a
   * bound are one. `reach`: most characters of the run that other tokens start with.
   */
  clamped(state: number, run?: Run, reach: number = this.longest): number {
    const { nodes, stacks, isComplete } = this.#states[state]!;
    const clamped = Array.from(stacks, (stack, i) => {
      const isInRun = nodes[i] === run?.node && this.#leftAt(run!.node, stack) > 0;
      if (!isInRun) return this.#clampedStack(stack);
      const { node, count, below } = this.#frames[stack]!;
      return this.#push(node, this.#clampedCount(node, count, reach), this.#clampedStack(below));
    });
    if (clamped.every((stack, i) => stack === stacks[i])) return state;
    return this.#state([...nodes], clamped, isComplete);
  }

  /** Times that a repeated character may still come; zero where a place is not within one. */
  #leftAt(node: number, stack: number): number {
    if (!this.network.characters.has(node) || stack === EMPTY) return 0;
    const { node: above, count } = this.#frames[stack]!;
    const loop = this.network.nodes[above]!;
    if (loop.kind !== "loop" || loop.body !== node) return 0;
    return loop.max === Infinity ? Infinity : loop.max - count + 1;
  }

  #step(from: number, kind: number): number {
    const { nodes, stacks, next } = this.#states[from]!;
    const byte = this.#byteOf[kind]!;
    const nextNodes: number[] = [], nextStacks: number[] = [];
    const read = (node: number, stack: number): void => {
      const byteRange = this.#bytes[node]!;
      if (byteRange === 0) {
        const { nodes } = this.network.nodes[node] as Split;
        for (const one of nodes) read(one, stack);
      } else if ((byteRange & 0xff) <= byte && byte <= byteRange >> 8) {
        nextNodes.push(this.#nexts[node]!);
        nextStacks.push(stack);
      }
    };
    for (let i = 0; i < nodes.length; i++) read(nodes[i]!, stacks[i]!);
    this.work += nodes.length + 1;
    const isSettled = nextNodes.every((node) => this.#isReader(node));
    const number = isSettled && nextNodes.length > 0
      ? this.#state(nextNodes, nextStacks, false)
      : this.#settle(nextNodes, nextStacks);
    return next[kind] = number;
  }

  /** Returns whether a node reads a byte. */
  #isReader(node: number): boolean {
    return this.#bytes[node]! > 0 || this.network.characters.has(node);
  }

  /** The state of all places that these lead to without a byte. */
  #settle(nodes: number[], stacks: number[]): number {
    const seen = new Set<number>();
    let isComplete = false;
    const go = (node: number, stack: number): void => {
      const place = node * PAIR + stack;
      if (seen.has(place) || seen.size >= MAX_PLACES) return;
      seen.add(place);
      nodes.push(node);
      stacks.push(stack);
    };
    const enter = (number: number, count: number, stack: number): void => {
      const loop = this.network.nodes[number]!;
      if (loop.kind !== "loop") return go(number, stack);
      // Beyond the least, a count without a bound means nothing.
      const next = loop.max === Infinity ? Math.min(count + 1, loop.min) : count + 1;
      if (count >= loop.min) enter(loop.next, 0, stack);
      if (count < loop.max) enter(loop.body, 0, this.#push(number, next, stack));
    };
    const [openNodes, openStacks] = [nodes.splice(0), stacks.splice(0)];
    for (const [i, node] of openNodes.entries()) enter(node, 0, openStacks[i]!);
    let kept = 0;
    for (let at = 0; at < nodes.length; at++) {
      const stack = stacks[at]!, node = this.network.nodes[nodes[at]!]!;
      if (this.#isReader(nodes[at]!)) {
        nodes[kept] = nodes[at]!;
        stacks[kept++] = stack;
      } else if (node.kind === "split") { for (const one of node.nodes) enter(one, 0, stack); }
      else if (node.kind === "call") enter(node.body, 0, this.#push(node.next, 0, stack));
      else if (stack === EMPTY) isComplete = true;
      else {
        const { node, count, below } = this.#frames[stack]!;
        enter(node, count, below);
      }
    }
    this.work += nodes.length;
    nodes.length = stacks.length = kept;
    return this.#state(nodes, stacks, isComplete);
  }

  /** The number of a state. */
  #state(nodes: readonly number[], stacks: readonly number[], isComplete: boolean): number {
    const sorted = { ...inOrder(nodes, stacks), isComplete };
    const hash = hashOf(sorted);
    const alike = this.#statesOf.get(hash) ?? [];
    const known = alike.find((number) => isEqual(this.#states[number]!, sorted));
    if (known !== undefined) return known;
    this.#size += 8 * nodes.length + 4 * this.#byteOf.length + 400;
    const next = new Int32Array(this.#byteOf.length).fill(-1);
    const number = this.#states.push({ ...sorted, next }) - 1;
    this.#statesOf.set(hash, [...alike, number]);
    return number;
  }

  #push(node: number, count: number, below: number): number {
    const head = numbered(this.#heads, node * PAIR + count);
    const found = this.#stackOf.get(head * PAIR + below);
    if (found !== undefined) return found;
    const stack = this.#frames.push({ node, count, below }) - 1;
    this.#stackOf.set(head * PAIR + below, stack);
    this.#size += 150;
    return stack;
  }

  #clampedStack(stack: number): number {
    if (stack === EMPTY) return EMPTY;
    const known = this.#clamped.get(stack);
    if (known !== undefined) return known;
    // By hand, as stacks may be deep.
    const above: number[] = [];
    let at = stack;
    while (at !== EMPTY && !this.#clamped.has(at)) {
      above.push(at);
      at = this.#frames[at]!.below;
    }
    let clamped = at === EMPTY ? EMPTY : this.#clamped.get(at)!;
    for (const one of above.reverse()) {
      const { node, count } = this.#frames[one]!;
      clamped = this.#push(node, this.#clampedCount(node, count, this.longest), clamped);
      this.#clamped.set(one, clamped);
    }
    return clamped;
  }

  /** The least count that meets the same bounds as `count` within the next `characters` characters. */
  #clampedCount(node: number, count: number, characters: number): number {
    const loop = this.network.nodes[node]!;
    if (loop.kind !== "loop" || loop.max === Infinity) return count;
    if (loop.max - count <= characters) return count;
    if (count >= loop.min) return Math.min(count, Math.max(loop.min, 1));
    return loop.min - count > characters ? 1 : count;
  }

  /** Bytes that the network never tells apart are of one class. */
  #classifyBytes(): void {
    const isFirst = new Uint8Array(257);
    isFirst[0] = 1;
    for (const node of this.network.nodes) {
      if (node.kind === "byte") isFirst[node.first] = isFirst[node.last + 1] = 1;
    }
    for (let byte = 0; byte < 256; byte++) {
      if (isFirst[byte]) this.#byteOf.push(byte);
      this.#classOf[byte] = this.#byteOf.length - 1;
    }
  }
}

/** Places in order, each once. */
function inOrder(
  nodes: readonly number[],
  stacks: readonly number[],
): Pick<State, "nodes" | "stacks"> {
  const isBehind = (a: number, b: number) => nodes[a]! - nodes[b]! || stacks[a]! - stacks[b]!;
  let isSorted = true;
  for (let i = 1; i < nodes.length && isSorted; i++) isSorted = isBehind(i - 1, i) < 0;
  if (isSorted) return { nodes: Uint32Array.from(nodes), stacks: Uint32Array.from(stacks) };
  const order = Uint32Array.from(nodes.keys()).sort(isBehind)
    .filter((i, at, all) => at === 0 || isBehind(all[at - 1]!, i) !== 0);
  return { nodes: order.map((i) => nodes[i]!), stacks: order.map((i) => stacks[i]!) };
}

function hashOf({ nodes, stacks, isComplete }: Omit<State, "next">): number {
  let hash = isComplete ? 1 : 0;
  for (let i = 0; i < nodes.length; i++) {
    hash = Math.imul(Math.imul(hash ^ nodes[i]!, 0x9e3779b1) ^ stacks[i]!, 0x85ebca6b);
    hash ^= hash >>> 15;
  }
  return hash;
}

function isEqual(one: Omit<State, "next">, other: Omit<State, "next">): boolean {
  return one.isComplete === other.isComplete && one.nodes.length === other.nodes.length &&
    one.nodes.every((node, i) => node === other.nodes[i] && one.stacks[i] === other.stacks[i]);
}

/** The number of a key, the next one for a new key. */
function numbered(map: Map<number, number>, key: number): number {
  const known = map.get(key);
  if (known !== undefined) return known;
  map.set(key, map.size);
  return map.size - 1;
}
