/** The tokens of a vocabulary by their bytes. A walk through the trie finds those that continue a text. */
import type { TokenMask } from "../generate/logit_rules.ts";
import { type Automaton, DEAD } from "./automaton.ts";

/** Tokens by bytes; nodes in the order of a walk. */
export interface TokenTrie {
  readonly bytes: Uint8Array;
  /** Length of the text from the root, at least one. */
  readonly depths: Uint16Array;
  /** First node after those below. */
  readonly ends: Int32Array;
  /** First token of each node in `ids`; the tokens of a node are up to those of the next. */
  readonly firsts: Int32Array;
  readonly ids: Int32Array;
}

export function allow(mask: TokenMask, id: number): void {
  mask[id >> 5]! |= 1 << (id & 31);
}

/** `tokens`: bytes by id, empty for those that are left out. */
export function trieOf(tokens: readonly Uint8Array[]): TokenTrie {
  // One letter for each byte, whose order is that of the bytes.
  const texts = tokens.flatMap((bytes, id) =>
    bytes.length > 0 ? [{ id, text: String.fromCharCode(...bytes) }] : []
  );
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

/** Nodes that a walk leaves out. */
interface Limits {
  /** Nodes to pass over with all below them. */
  readonly isSkipped?: Uint8Array;
  readonly maxDepth?: number;
}

/** Allows the tokens that may come in a state. @throws {TooMuchWork} */
export function walk(
  { bytes, depths, ends, firsts, ids }: TokenTrie,
  automaton: Automaton,
  state: number,
  mask: TokenMask,
  { isSkipped, maxDepth = Infinity }: Limits = {},
): void {
  if (state === DEAD) return;
  const states = [state];
  for (let node = 0; node < bytes.length;) {
    const depth = depths[node]!;
    const isOut = depth > maxDepth || isSkipped?.[node] === 1;
    const next = isOut ? DEAD : automaton.step(states[depth - 1]!, bytes[node]!);
    if (next === DEAD) {
      node = ends[node]!;
      continue;
    }
    states[depth] = next;
    for (let i = firsts[node]!; i < firsts[node + 1]!; i++) allow(mask, ids[i]!);
    node++;
  }
}
