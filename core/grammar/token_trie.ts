/**
 * The tokens of a vocabulary by their bytes, and which of them may continue a text.
 *
 * A mask is a walk through the tree of all tokens. Between the characters of a string nearly all tokens are
 * allowed, so those that hold only plain characters are counted once and for all, and only the others are
 * walked through.
 */
import type { TokenMask } from "../generate/logit_rules.ts";
import { type Automaton, DEAD } from "./automaton.ts";

/** Most work for one mask; where it does not suffice, tokens of one byte are all that is offered. */
const MAX_WORK = 500_000;

/** Bytes that JSON strings escape. */
const isPlain = (byte: number) => byte >= 0x20 && byte !== 0x22 && byte !== 0x5c;

/** Tokens in a tree; nodes in the order of a walk through it. */
interface Tree {
  readonly bytes: Uint8Array;
  /** Length of the text from the root, at least one. */
  readonly depths: Uint16Array;
  /** First node behind those below. */
  readonly ends: Int32Array;
  /** First token of each node in `ids`; the tokens of a node are up to those of the next. */
  readonly firsts: Int32Array;
  readonly ids: Int32Array;
}

export class TokenTrie {
  /** Bytes of the longest token. */
  readonly longest: number;
  /** Most bytes of a string in a token that is not of plain characters alone. */
  readonly reach: number;
  readonly #all: Tree;
  /** Tokens that are not of plain characters alone, and that may come within a string. */
  readonly #others: Tree;
  /** Tokens of so many plain characters, or fewer. */
  readonly #plain: TokenMask[] = [];

  /** `tokens`: bytes by id, empty for those that no grammar allows. */
  constructor(tokens: readonly Uint8Array[], private readonly stopTokenIds: readonly number[]) {
    const lengths = tokens.map(plainLength);
    const words = Math.ceil(tokens.length / 32);
    const ids = [...tokens.keys()].filter((id) => tokens[id]!.length > 0);
    this.#all = treeOf(tokens, ids);
    const others = ids.filter((id) => lengths[id] === 0 && bytesWithin(tokens[id]!) > 0);
    this.#others = treeOf(tokens, others);
    this.longest = ids.reduce((most, id) => Math.max(most, tokens[id]!.length), 1);
    this.reach = others.reduce((most, id) => Math.max(most, bytesWithin(tokens[id]!)), 1);
    this.#plain.push(new Int32Array(words));
    const byLength = Map.groupBy(ids, (id) => lengths[id]!);
    const longest = Math.max(0, ...byLength.keys());
    for (let length = 1; length <= longest; length++) {
      const mask = Int32Array.from(this.#plain.at(-1)!);
      for (const id of byLength.get(length) ?? []) allow(mask, id);
      this.#plain.push(mask);
    }
  }

  /** The tokens that may come in a state, but for those of plain characters within a string. */
  mask(automaton: Automaton, state: number): TokenMask {
    const mask = new Int32Array(this.#plain[0]!.length);
    const isWhole = automaton.plainCharacters(state) === 0
      ? walk(this.#all, automaton, state, mask)
      : walk(this.#others, automaton, state, mask) &&
        walk(this.#all, automaton, automaton.withoutPlain(state), mask);
    if (!isWhole) walk(this.#all, automaton, state, mask, 1);
    if (automaton.isComplete(state)) { for (const id of this.stopTokenIds) allow(mask, id); }
    return mask;
  }

  /** The mask with all tokens of so many plain characters, or fewer. */
  withPlain(mask: TokenMask, length: number): Int32Array<ArrayBuffer> {
    const plain = this.#plain[Math.min(length, this.#plain.length - 1)]!;
    const all = new Int32Array(mask);
    if (length > 0) { for (let i = 0; i < all.length; i++) all[i]! |= plain[i]!; }
    return all;
  }
}

function allow(mask: TokenMask, id: number): void {
  mask[id >> 5]! |= 1 << (id & 31);
}

/** Characters of a token that holds only whole plain ones; zero for others. */
function plainLength(bytes: Uint8Array): number {
  if (!bytes.every(isPlain)) return 0;
  try {
    return Array.from(UTF8.decode(bytes)).length;
  } catch {
    return 0;
  }
}

/** Bytes of a token within a string, its end included; zero where it has one that no string has. */
function bytesWithin(bytes: Uint8Array): number {
  const end = bytes.findIndex((byte) => byte < 0x20 || byte === 0x22);
  return end < 0 ? bytes.length : bytes[end] === 0x22 ? end + 1 : 0;
}

const UTF8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

function treeOf(tokens: readonly Uint8Array[], unsorted: readonly number[]): Tree {
  // One letter for each byte, whose order is that of the bytes.
  const texts = unsorted.map((id) => ({ id, text: String.fromCharCode(...tokens[id]!) }));
  texts.sort((a, b) => a.text < b.text ? -1 : a.text > b.text ? 1 : 0);
  const size = texts.reduce((sum, { text }) => sum + text.length, 0);
  const bytes = new Uint8Array(size), depths = new Uint16Array(size), ends = new Int32Array(size);
  const firsts = new Int32Array(size + 1), ids = new Int32Array(texts.length);
  const open: number[] = [];
  let nodes = 0, before = "";
  for (const [i, { id, text }] of texts.entries()) {
    let common = 0;
    while (common < text.length && text[common] === before[common]) common++;
    while (open.length > common) ends[open.pop()!] = nodes;
    for (let at = common; at < text.length; at++) {
      bytes[nodes] = text.charCodeAt(at);
      depths[nodes] = at + 1;
      firsts[nodes] = i;
      open.push(nodes++);
    }
    // Nodes above the last one end before its token.
    ids[i] = id;
    before = text;
  }
  while (open.length > 0) ends[open.pop()!] = nodes;
  firsts[nodes] = texts.length;
  return {
    bytes: bytes.slice(0, nodes),
    depths: depths.slice(0, nodes),
    ends: ends.slice(0, nodes),
    firsts: firsts.slice(0, nodes + 1),
    ids,
  };
}

/** Allows the tokens that a state allows; false where there is too much to do. */
function walk(
  { bytes, depths, ends, firsts, ids }: Tree,
  automaton: Automaton,
  state: number,
  mask: TokenMask,
  maxDepth = Infinity,
): boolean {
  if (state === DEAD) return true;
  const states = [state], most = automaton.work + MAX_WORK;
  for (let node = 0; node < bytes.length;) {
    const depth = depths[node]!;
    const next = depth > maxDepth ? DEAD : automaton.step(states[depth - 1]!, bytes[node]!);
    if (next === DEAD) {
      node = ends[node]!;
      continue;
    }
    if (automaton.work > most && maxDepth === Infinity) return false;
    states[depth] = next;
    for (let i = firsts[node]!; i < firsts[node + 1]!; i++) allow(mask, ids[i]!);
    node++;
  }
  return true;
}
