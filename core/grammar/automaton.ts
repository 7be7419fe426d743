/**
 * A pushdown automaton over bytes, made deterministic as texts come to its states.
 *
 * A state is a set of configurations: nodes of the network, each with the stacks of calls and counted
 * repetitions that may be open there; the frame of a repetition holds its counter. Stacks that differ only
 * below a frame share it (a graph-structured stack). Equal states, and equal sets of stacks, have one number.
 *
 *     text of a{2,3}b    configurations, as node [counter]
 *                        a [1]
 *     a                  a [2]
 *     aa                 a [3]  b []    the epsilon closure leaves a repetition that may end
 *     aaa                b []
 */
import { DataError } from "../base/errors.ts";
import type { Character } from "./expression.ts";
import type { Network, Split } from "./network.ts";

/** The set of the one stack that is empty. */
const EMPTY = 0;

/** Factor that makes one number of two. */
const PAIR = 2 ** 26;

/** The state that no text is in. */
export const DEAD = 0;

/** A counted repetition of a character of JSON strings. */
export interface Repetition {
  /** Node of the character. */
  readonly node: number;
  readonly character: Character;
  /** Most times that the character may still come. */
  readonly remaining: number;
}

interface State {
  readonly nodes: Uint32Array;
  readonly stacks: Uint32Array;
  readonly isAccepting: boolean;
  /** Next state by class of byte; −1 where it was not made yet. */
  readonly next: Int32Array;
}

/** A grammar of which a text has too many readings. */
export class TooMuchWork extends DataError {
  constructor() {
    super(
      "the schema reads a text in too many ways: name alternatives apart, or bound their number",
    );
  }
}

/** Stacks under one frame: a node to return to, or a repetition and its counter. */
interface Frame {
  /** Its own number alone. */
  readonly members: readonly number[];
  readonly node: number;
  readonly count: number;
  readonly below: number;
  /** Number of node and count. */
  readonly head: number;
}

export class Automaton {
  readonly start: number;
  /** Number of configurations visited so far, and the most that may be. */
  work = 0;
  limit = Infinity;
  #size = 0;
  /** First and last byte of nodes that read one; zero for others, as no text has a byte of zero. */
  readonly #bytes: Uint16Array;
  readonly #nexts: Uint32Array;
  readonly #classOf = new Uint8Array(256);
  readonly #byteOf: number[] = [];
  readonly #states: State[] = [];
  readonly #statesOf = new Map<number, number[]>();
  /** Sets of stacks: those under one frame, or the numbers of several such sets. */
  readonly #stacks: (Frame | Pick<Frame, "members">)[] = [
    { node: 0, count: 0, below: 0, head: 0, members: [EMPTY] },
  ];
  readonly #heads = new Map([[0, EMPTY]]);
  readonly #framed = new Map<number, number>();
  readonly #unions = new Map<string, number>();
  readonly #saturated = new Map([[EMPTY, EMPTY]]);

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
    this.start = this.#closure([network.start], [EMPTY]);
  }

  /** Memory in bytes, about. */
  get size(): number {
    return this.#size;
  }

  /** True where a text may end. */
  isAccepting(state: number): boolean {
    return this.#states[state]!.isAccepting;
  }

  /** The state after a byte. */
  step(state: number, byte: number): number {
    const { next } = this.#states[state]!;
    const known = next[this.#classOf[byte]!]!;
    return known >= 0 ? known : this.#step(state, this.#classOf[byte]!);
  }

  /** The first repeated character of a state, with the most that any of its counters leaves. */
  repetition(state: number): Repetition | undefined {
    const { nodes, stacks } = this.#states[state]!;
    for (const [i, node] of nodes.entries()) {
      const character = this.network.characters.get(node);
      if (!character) continue;
      const remaining = this.#members(stacks[i]!)
        .reduce((most, one) => Math.max(most, this.#remaining(node, one)), 0);
      if (remaining > 0) return { node, character, remaining };
    }
    return undefined;
  }

  /** The same state without the repetition of a character. */
  withoutRepetition(state: number, node: number): number {
    const { nodes, stacks } = this.#states[state]!;
    const others = Array.from(
      stacks,
      (set, i) =>
        this.#members(set).filter((one) => nodes[i] !== node || !this.#remaining(node, one)),
    );
    const kept = [...others.keys()].filter((i) => others[i]!.length > 0);
    return this.#state(kept.map((i) => nodes[i]!), kept.map((i) => this.#union(others[i]!)), false);
  }

  /**
   * A state that allows the same tokens, but for those within the repetition: counters that no token brings to a
   * bound are saturated. `lookahead`: most characters of the repetition that other tokens start with.
   */
  saturated(state: number, repetition?: Repetition, lookahead: number = this.longest): number {
    const { nodes, stacks, isAccepting } = this.#states[state]!;
    const saturated = Array.from(stacks, (set, i) => {
      const node = nodes[i]!;
      if (node !== repetition?.node) return this.#saturatedSet(set);
      return this.#union(
        this.#members(set).map((one) =>
          this.#saturatedFrame(one, this.#remaining(node, one) > 0 ? lookahead : this.longest)
        ),
      );
    });
    if (saturated.every((set, i) => set === stacks[i])) return state;
    return this.#state([...nodes], saturated, isAccepting);
  }

  /** Times that a repeated character may still come; zero where stacks of a frame do not repeat it. */
  #remaining(node: number, framed: number): number {
    if (framed === EMPTY) return 0;
    const { node: above, count } = this.#stacks[framed] as Frame;
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
    this.#spend(nodes.length + 1);
    const isClosed = nextNodes.every((node) => this.#isReader(node));
    return next[kind] = isClosed
      ? this.#state(nextNodes, nextStacks, false)
      : this.#closure(nextNodes, nextStacks);
  }

  /** Returns whether a node reads a byte. */
  #isReader(node: number): boolean {
    return this.#bytes[node]! > 0 || this.network.characters.has(node);
  }

  /** The epsilon closure: the state of all configurations that these lead to without a byte. */
  #closure(nodes: number[], stacks: number[]): number {
    const seen = new Set<number>();
    let isAccepting = false;
    const go = (node: number, stack: number): void => {
      const configuration = node * PAIR + stack;
      if (seen.has(configuration)) return;
      seen.add(configuration);
      this.#spend(1);
      nodes.push(node);
      stacks.push(stack);
    };
    const enter = (number: number, count: number, stack: number): void => {
      const loop = this.network.nodes[number]!;
      if (loop.kind !== "loop") return go(number, stack);
      // Without a bound the counter saturates at the least.
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
      else {
        for (const one of this.#members(stack)) {
          const { node, count, below } = this.#stacks[one] as Frame;
          if (one === EMPTY) isAccepting = true;
          else enter(node, count, below);
        }
      }
    }
    nodes.length = stacks.length = kept;
    return this.#state(nodes, stacks, isAccepting);
  }

  /** The number of a state. */
  #state(nodes: readonly number[], stacks: readonly number[], isAccepting: boolean): number {
    const sorted = { ...this.#inOrder(nodes, stacks), isAccepting };
    const hash = hashOf(sorted);
    const alike = this.#statesOf.get(hash) ?? [];
    const known = alike.find((number) => isEqual(this.#states[number]!, sorted));
    if (known !== undefined) return known;
    this.#size += 8 * nodes.length + 4 * this.#byteOf.length + 400;
    const next = new Int32Array(this.#byteOf.length).fill(-1);
    const number = this.#states.push({ ...sorted, next }) - 1;
    alike.push(number);
    this.#statesOf.set(hash, alike);
    return number;
  }

  /** Configurations in order, each node once. */
  #inOrder(nodes: readonly number[], stacks: readonly number[]): Pick<State, "nodes" | "stacks"> {
    let isSorted = true;
    for (let i = 1; i < nodes.length && isSorted; i++) isSorted = nodes[i - 1]! < nodes[i]!;
    if (isSorted) return { nodes: Uint32Array.from(nodes), stacks: Uint32Array.from(stacks) };
    const sets = new Map<number, number[]>();
    for (const [i, node] of nodes.entries()) {
      sets.getOrInsertComputed(node, () => []).push(stacks[i]!);
    }
    const order = Uint32Array.from(sets.keys()).sort();
    return { nodes: order, stacks: order.map((node) => this.#union(sets.get(node)!)) };
  }

  /** Counts work. @throws {TooMuchWork} where it is more than may be */
  #spend(work: number): void {
    this.work += work;
    if (this.work > this.limit) throw new TooMuchWork();
  }

  /** The sets of one frame that a set of stacks is made of. */
  #members(set: number): readonly number[] {
    return this.#stacks[set]!.members;
  }

  /** The stacks of all these sets. */
  #union(sets: readonly number[]): number {
    if (sets.length === 1) return sets[0]!;
    const all = Uint32Array.from(new Set(sets)).sort();
    if (all.length === 1) return all[0]!;
    const key = all.join();
    const known = this.#unions.get(key);
    if (known !== undefined) return known;
    const byHead = new Map<number, Set<number>>();
    for (const set of all) {
      const members = this.#members(set);
      this.#spend(members.length);
      for (const one of members) {
        const { head } = this.#stacks[one] as Frame;
        byHead.getOrInsertComputed(head, () => new Set()).add(one);
      }
    }
    const members = Uint32Array.from(byHead.values(), (alike) => {
      const [first] = alike as Iterable<number> as [number];
      if (alike.size === 1) return first;
      const { node, count } = this.#stacks[first] as Frame;
      return this.#push(
        node,
        count,
        this.#union(Array.from(alike, (one) => (this.#stacks[one] as Frame).below)),
      );
    }).sort();
    const memberKey = members.join();
    const set = members.length === 1 ? members[0]! : this.#unions.get(memberKey) ??
      this.#stacks.push({ members: [...members] }) - 1;
    this.#unions.set(key, set).set(memberKey, set);
    this.#size += 2 * (key.length + memberKey.length) + 8 * members.length + 200;
    return set;
  }

  /** The stacks of a set under one more frame. */
  #push(node: number, count: number, below: number): number {
    const head = this.#heads.getOrInsertComputed(node * PAIR + count, () => this.#heads.size);
    const found = this.#framed.get(head * PAIR + below);
    if (found !== undefined) return found;
    const framed = this.#stacks.length;
    this.#stacks.push({ node, count, below, head, members: [framed] });
    this.#framed.set(head * PAIR + below, framed);
    this.#size += 150;
    return framed;
  }

  #saturatedSet(set: number): number {
    // By hand, as stacks may be deep.
    const open = this.#saturated.has(set) ? [] : [set];
    for (let at; (at = open.at(-1)) !== undefined;) {
      const members = this.#members(at), before = open.length;
      for (const one of members) {
        const { below } = this.#stacks[one] as Frame;
        if (!this.#saturated.has(below)) open.push(below);
      }
      if (open.length > before) continue;
      const saturated = members.map((one) => this.#saturatedFrame(one, this.longest));
      this.#saturated.set(at, this.#union(saturated));
      open.pop();
    }
    return this.#saturated.get(set)!;
  }

  /** A set of one frame with the least counter that allows the same. */
  #saturatedFrame(framed: number, lookahead: number): number {
    if (framed === EMPTY) return EMPTY;
    const { node, count, below } = this.#stacks[framed] as Frame;
    return this.#push(
      node,
      this.#saturatedCount(node, count, lookahead),
      this.#saturatedSet(below),
    );
  }

  /** The least counter that meets the same bounds as `count` within the next `lookahead` characters. */
  #saturatedCount(node: number, count: number, lookahead: number): number {
    const loop = this.network.nodes[node]!;
    if (loop.kind !== "loop" || loop.max === Infinity) return count;
    if (loop.max - count <= lookahead) return count;
    if (count >= loop.min) return Math.min(count, Math.max(loop.min, 1));
    return loop.min - count > lookahead ? 1 : count;
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

function hashOf({ nodes, stacks, isAccepting }: Omit<State, "next">): number {
  let hash = Number(isAccepting);
  for (let i = 0; i < nodes.length; i++) {
    hash = Math.imul(Math.imul(hash ^ nodes[i]!, 0x9e3779b1) ^ stacks[i]!, 0x85ebca6b);
    hash ^= hash >>> 15;
  }
  return hash;
}

function isEqual(one: Omit<State, "next">, other: Omit<State, "next">): boolean {
  return one.isAccepting === other.isAccepting && one.nodes.length === other.nodes.length &&
    one.nodes.every((node, i) => node === other.nodes[i] && one.stacks[i] === other.stacks[i]);
}
