/**
 * The states that texts of a grammar may be in, made as texts come to them.
 *
 * A state is a set of places: nodes of the network, each with the stacks of calls and loops that may be open
 * there. Loops count on the stack. Stacks that differ only below a frame share that frame, so that a text
 * with many readings has few of them. States and sets of stacks are numbered: equal ones are the same.
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

/** A grammar of which a text has too many readings. */
export class TooMuchWork extends DataError {
  constructor() {
    super(
      "the schema reads a text in too many ways: name alternatives apart, or bound their number",
    );
  }
}

/** Stacks under one frame: a node to come back to, or a loop with the times that its body was begun. */
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
  /** Number of places visited so far, and the most that may be. */
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
  readonly #clamped = new Map([[EMPTY, EMPTY]]);

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

  /** The state after a byte. */
  step(state: number, byte: number): number {
    const { next } = this.#states[state]!;
    const known = next[this.#classOf[byte]!]!;
    return known >= 0 ? known : this.#step(state, this.#classOf[byte]!);
  }

  /** The first run of a state, with the most that any place of it leaves. */
  run(state: number): Run | undefined {
    const { nodes, stacks } = this.#states[state]!;
    for (let i = 0; i < nodes.length; i++) {
      if (!this.network.characters.has(nodes[i]!)) continue;
      let left = 0;
      for (const one of this.#members(stacks[i]!)) {
        left = Math.max(left, this.#leftAt(nodes[i]!, one));
      }
      if (left > 0) return { node: nodes[i]!, left };
    }
    return undefined;
  }

  /** The same state without the run of a character. */
  withoutRun(state: number, node: number): number {
    const { nodes, stacks } = this.#states[state]!;
    const others = Array.from(
      stacks,
      (set, i) => this.#members(set).filter((one) => nodes[i] !== node || !this.#leftAt(node, one)),
    );
    const kept = [...others.keys()].filter((i) => others[i]!.length > 0);
    return this.#state(kept.map((i) => nodes[i]!), kept.map((i) => this.#union(others[i]!)), false);
  }

  /**
   * A state that allows the same tokens, but for those of the run alone: counts that no token can bring to a
   * bound are one. `reach`: most characters of the run that other tokens start with.
   */
  clamped(state: number, run?: Run, reach: number = this.longest): number {
    const { nodes, stacks, isComplete } = this.#states[state]!;
    const clamped = Array.from(stacks, (set, i) => {
      if (nodes[i] !== run?.node) return this.#clampedSet(set);
      return this.#union(
        this.#members(set).map((one) =>
          this.#clampedFrame(one, this.#leftAt(run!.node, one) > 0 ? reach : this.longest)
        ),
      );
    });
    if (clamped.every((set, i) => set === stacks[i])) return state;
    return this.#state([...nodes], clamped, isComplete);
  }

  /** Times that a repeated character may still come; zero where stacks of a frame are not within one. */
  #leftAt(node: number, framed: number): number {
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
      if (seen.has(place)) return;
      seen.add(place);
      this.#spend(1);
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
      else {
        for (const one of this.#members(stack)) {
          const { node, count, below } = this.#stacks[one] as Frame;
          if (one === EMPTY) isComplete = true;
          else enter(node, count, below);
        }
      }
    }
    nodes.length = stacks.length = kept;
    return this.#state(nodes, stacks, isComplete);
  }

  /** The number of a state. */
  #state(nodes: readonly number[], stacks: readonly number[], isComplete: boolean): number {
    const sorted = { ...this.#inOrder(nodes, stacks), isComplete };
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

  /** Places in order, each node once. */
  #inOrder(nodes: readonly number[], stacks: readonly number[]): Pick<State, "nodes" | "stacks"> {
    let isSorted = true;
    for (let i = 1; i < nodes.length && isSorted; i++) isSorted = nodes[i - 1]! < nodes[i]!;
    if (isSorted) return { nodes: Uint32Array.from(nodes), stacks: Uint32Array.from(stacks) };
    const sets = new Map<number, number[]>();
    for (const [i, node] of nodes.entries()) {
      if (!sets.has(node)) sets.set(node, []);
      sets.get(node)!.push(stacks[i]!);
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
        if (!byHead.has(head)) byHead.set(head, new Set());
        byHead.get(head)!.add(one);
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
    const head = numbered(this.#heads, node * PAIR + count);
    const found = this.#framed.get(head * PAIR + below);
    if (found !== undefined) return found;
    const framed = this.#stacks.length;
    this.#stacks.push({ node, count, below, head, members: [framed] });
    this.#framed.set(head * PAIR + below, framed);
    this.#size += 150;
    return framed;
  }

  #clampedSet(set: number): number {
    // By hand, as stacks may be deep.
    const open = this.#clamped.has(set) ? [] : [set];
    for (let at; (at = open.at(-1)) !== undefined;) {
      const members = this.#members(at), before = open.length;
      for (const one of members) {
        const { below } = this.#stacks[one] as Frame;
        if (!this.#clamped.has(below)) open.push(below);
      }
      if (open.length > before) continue;
      const clamped = members.map((one) => this.#clampedFrame(one, this.longest));
      this.#clamped.set(at, this.#union(clamped));
      open.pop();
    }
    return this.#clamped.get(set)!;
  }

  /** A set of one frame with the least count that allows the same. */
  #clampedFrame(framed: number, characters: number): number {
    if (framed === EMPTY) return EMPTY;
    const { node, count, below } = this.#stacks[framed] as Frame;
    return this.#push(node, this.#clampedCount(node, count, characters), this.#clampedSet(below));
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

function hashOf({ nodes, stacks, isComplete }: Omit<State, "next">): number {
  let hash = Number(isComplete);
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
