/**
 * A grammar as a network of nodes that read bytes, and call each other as rules do.
 *
 * Expressions that no text can end, such as an object that must contain itself, are left out, so that every
 * text that the network allows can be continued to its end.
 */
import { DataError } from "../base/errors.ts";
import {
  type Character,
  type Expression,
  Forms,
  type Grammar,
  isEmpty,
  partsOf,
} from "./expression.ts";
import { spellings } from "./json_text.ts";
import { byteSequences } from "./utf8.ts";

/** A place in the network. */
export type Node =
  /** Reads a byte of a range. */
  | { readonly kind: "byte"; readonly first: number; readonly last: number; readonly next: number }
  | Split
  /** Reads a text of a rule, and continues after it. */
  | { readonly kind: "call"; readonly body: number; readonly next: number }
  /** The end of a rule. */
  | { readonly kind: "return" }
  | Loop;

/** Leads to any of several nodes. */
export interface Split {
  readonly kind: "split";
  readonly nodes: readonly number[];
}

/** Reads its body from `min` to `max` times. */
export interface Loop {
  readonly kind: "loop";
  readonly body: number;
  readonly next: number;
  readonly min: number;
  readonly max: number;
}

/** Nodes by number. */
export interface Network {
  readonly nodes: readonly Node[];
  readonly start: number;
  /** Characters of JSON strings by their first nodes. */
  readonly characters: ReadonlyMap<number, Character>;
}

const RETURN = 0;

/** Most nodes: a schema at its largest size has fewer unless it is made for it. */
const MAX_NODES = 400_000;

/** Most rounds in which rules are told apart; beyond them, none are taken for equal. */
const MAX_ROUNDS = 16;

/** @throws {DataError} for a grammar without texts, or one that is too large */
export function networkOf(grammar: Grammar): Network {
  const isPossible = possibleRules(grammar);
  requireProgress(grammar);
  const builder = new Builder(grammar, isPossible, equalRules(grammar));
  const start = builder.rule(0);
  if (start === undefined) throw new DataError("the schema allows no value that ends");
  return builder.finish(start);
}

class Builder {
  readonly #nodes: Node[] = [{ kind: "return" }];
  readonly #rules = new Map<number, number>();
  readonly #characters = new Map<number, Character>();
  readonly #characterNodes = new Map<string, number>();
  /** Nodes by what they do: equal alternatives are one. */
  readonly #equal = new Map<string | number, number>();
  /** Rules whose first node is promised. */
  readonly #open: number[] = [];

  /** `equals`: the first of the rules that are equal to each one. */
  constructor(
    private readonly grammar: Grammar,
    private readonly isPossible: readonly boolean[],
    private readonly equals: readonly number[],
  ) {}

  /** First node of a rule; undefined for one without texts. */
  rule(given: number): number | undefined {
    const rule = this.equals[given]!;
    if (!this.isPossible[rule]) return undefined;
    const known = this.#rules.get(rule);
    if (known !== undefined) return known;
    const entry = this.#new({ kind: "split", nodes: [] });
    this.#rules.set(rule, entry);
    this.#open.push(rule);
    return entry;
  }

  finish(start: number): Network {
    for (let rule; (rule = this.#open.pop()) !== undefined;) {
      const body = this.#build(this.grammar.rules[rule]!, RETURN)!;
      this.#nodes[this.#rules.get(rule)!] = { kind: "split", nodes: [body] };
    }
    return { nodes: this.#nodes, start, characters: this.#characters };
  }

  /** The node from which an expression leads to the next one; undefined where nothing does. */
  #build(expression: Expression, next: number): number | undefined {
    if (typeof expression === "string") return this.#text(expression, next);
    switch (expression.kind) {
      case "class":
        return this.#split(
          byteSequences(expression.ranges).map((bytes) =>
            bytes.reduceRight(
              (next, [first, last]) => this.#add({ kind: "byte", first, last, next }),
              next,
            )
          ),
        );
      case "character":
        return this.#call(this.#character(expression), next);
      case "sequence":
        return expression.parts.reduceRight<number | undefined>(
          (next, part) => next === undefined ? undefined : this.#build(part, next),
          next,
        );
      case "choice":
        return this.#split(expression.options.map((option) => this.#build(option, next)));
      case "rule":
        return this.#call(this.rule(expression.rule), next);
      case "repeat": {
        const { part, min, max } = expression;
        if (max === 0) return next;
        if (min === 0 && max === 1) return this.#split([this.#build(part, next), next]);
        if (min === 1 && max === 1) return this.#build(part, next);
        const body = this.#build(part, RETURN);
        if (body === undefined) return min === 0 ? next : undefined;
        return this.#add({ kind: "loop", body, next, min, max });
      }
    }
  }

  #text(text: string, next: number): number {
    return new TextEncoder().encode(text).reduceRight(
      (next, byte) => this.#add({ kind: "byte", first: byte, last: byte, next }),
      next,
    );
  }

  #split(nodes: readonly (number | undefined)[]): number | undefined {
    const possible = [...new Set(nodes.filter((node) => node !== undefined))];
    if (possible.length < 2) return possible[0];
    return this.#add({ kind: "split", nodes: possible });
  }

  /** A call that nothing follows leaves nothing to come back to. */
  #call(body: number | undefined, next: number): number | undefined {
    if (body === undefined || next === RETURN) return body;
    return this.#add({ kind: "call", body, next });
  }

  #character(character: Character): number {
    const key = String(character.ranges);
    const known = this.#characterNodes.get(key);
    if (known !== undefined) return known;
    const first = this.#build(spellings(character), RETURN)!;
    // A node of its own, which tells the character from one that begins alike.
    const node = this.#new({ kind: "split", nodes: [first] });
    this.#characterNodes.set(key, node);
    this.#characters.set(node, character);
    return node;
  }

  #add(node: Node): number {
    const key = node.kind === "byte"
      ? node.next * 0x10000 + node.first * 0x100 + node.last
      : Object.values(node).join();
    return this.#equal.getOrInsertComputed(key, () => this.#new(node));
  }

  #new(node: Node): number {
    if (this.#nodes.length >= MAX_NODES) {
      throw new DataError("the schema is too large for a grammar");
    }
    return this.#nodes.push(node) - 1;
  }
}

/** For each rule, the first one that allows the same texts in the same way. */
function equalRules({ rules }: Grammar): readonly number[] {
  const used = rules.map((rule) => [...rulesIn(rule)]);
  const forms = new Forms();
  let classes: readonly number[] = rules.map((rule) => forms.of(rule));
  let count = 0;
  // Rules that were alike may use others that turned out not to be.
  for (let round = 0; round < MAX_ROUNDS; round++) {
    const firsts = new Map<string, number>();
    const next = rules.map((_, rule) => {
      const key = `${classes[rule]} ${used[rule]!.map((one) => classes[one])}`;
      return firsts.getOrInsertComputed(key, () => rule);
    });
    if (firsts.size === count) return next;
    [classes, count] = [next, firsts.size];
  }
  return [...rules.keys()];
}

/** Rules from which a text can come to an end. */
function possibleRules({ rules }: Grammar): boolean[] {
  const isPossible = rules.map(() => false);
  const users = rules.map((): number[] => []);
  for (const [user, rule] of rules.entries()) {
    for (const used of rulesIn(rule)) users[used]!.push(user);
  }
  const ends = (expression: Expression): boolean => {
    if (typeof expression === "string") return true;
    const { kind } = expression;
    if (kind === "rule") return isPossible[expression.rule]!;
    if (kind === "class") return expression.ranges.length > 0;
    if (kind === "choice") return expression.options.some(ends);
    return kind === "repeat" && expression.min === 0 || partsOf(expression).every(ends);
  };
  const open = new Set(rules.keys());
  for (const rule of open) {
    open.delete(rule);
    if (isPossible[rule] || !ends(rules[rule]!)) continue;
    isPossible[rule] = true;
    for (const user of users[rule]!) if (!isPossible[user]) open.add(user);
  }
  return isPossible;
}

function* rulesIn(expression: Expression): Generator<number> {
  if (typeof expression === "object" && expression.kind === "rule") yield expression.rule;
  else for (const part of partsOf(expression)) yield* rulesIn(part);
}

/** Refuses rules that lead back to themselves before they have read anything. */
function requireProgress({ rules }: Grammar): void {
  const firsts = rules.map((rule) => {
    const found = new Set<number>();
    collectFirst(rule, found);
    return [...found];
  });
  const state = new Uint8Array(rules.length);
  for (const root of rules.keys()) {
    const path: [rule: number, next: number][] = [[root, 0]];
    if (state[root] === 2) continue;
    state[root] = 1;
    while (path.length > 0) {
      const top = path.at(-1)!;
      const used = firsts[top[0]]![top[1]++];
      if (used === undefined) {
        state[top[0]] = 2;
        path.pop();
      } else if (state[used] === 1) {
        throw new DataError(
          'the schema keyword "$ref" is not supported where it leads back to itself',
        );
      } else if (state[used] === 0) {
        state[used] = 1;
        path.push([used, 0]);
      }
    }
  }
}

/** Adds the rules that an expression may begin with; returns whether it may read nothing. */
function collectFirst(expression: Expression, found: Set<number>): boolean {
  const isObject = typeof expression === "object";
  if (isObject && expression.kind === "rule") found.add(expression.rule);
  const collect = (part: Expression) => collectFirst(part, found);
  if (isObject && expression.kind === "sequence") return expression.parts.every(collect);
  partsOf(expression).forEach(collect);
  return isEmpty(expression); // no rule of a schema is
}
