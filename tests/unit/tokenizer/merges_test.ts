/** Merging against the definition: again and again the pair of lowest rank, leftmost among equals. */
import { assertEquals } from "@std/assert";
import { RandomStream } from "../../../core/base/random.ts";
import { MergeTable } from "../../../core/tokenizer/merges.ts";

/** A merge of two tokens, by rank. */
type Merge = readonly [left: string, right: string];

/** Random merges over an alphabet; where `isShuffled`, one may rank before those that make its parts. */
function randomMerges(stream: RandomStream, alphabet: string, isShuffled: boolean): Merge[] {
  const tokens = [...alphabet], merges: Merge[] = [];
  while (merges.length < 40) {
    const left = tokens[stream.integer(tokens.length)]!;
    const right = tokens[stream.integer(tokens.length)]!;
    if (merges.some((merge) => merge[0] === left && merge[1] === right)) continue;
    if (!tokens.includes(left + right)) tokens.push(left + right);
    merges.splice(isShuffled ? stream.integer(merges.length + 1) : merges.length, 0, [left, right]);
  }
  return merges;
}

function mergeByDefinition(word: string, merges: readonly Merge[]): string[] {
  const ranks = new Map(merges.map(([left, right], rank) => [`${left} ${right}`, rank]));
  const tokens = [...word];
  for (;;) {
    let best = -1, lowest = Infinity;
    for (let i = 0; i + 1 < tokens.length; i++) {
      const rank = ranks.get(`${tokens[i]} ${tokens[i + 1]}`) ?? Infinity;
      if (rank < lowest) {
        lowest = rank;
        best = i;
      }
    }
    if (best < 0) return tokens;
    tokens.splice(best, 2, tokens[best]! + tokens[best + 1]!);
  }
}

/** Compares words of up to a given length; a tenth of them are runs of one character. */
function compare(stream: RandomStream, cases: number, length: number): void {
  for (let i = 0; i < cases; i++) {
    const alphabet = "abcd".slice(0, 1 + stream.integer(4));
    const merges = randomMerges(stream, alphabet, i % 2 === 0);
    const ids = new Map([...alphabet].map((letter, id) => [letter, id]));
    for (const [left, right] of merges) {
      if (!ids.has(left + right)) ids.set(left + right, ids.size);
    }
    const table = new MergeTable(merges.length);
    for (const [rank, [left, right]] of merges.entries()) {
      table.set(ids.get(left)!, ids.get(right)!, rank, ids.get(left + right)!);
    }
    const letters = i % 10 === 0 ? 1 : alphabet.length;
    const word = Array.from(
      { length: 1 + stream.integer(length) },
      () => alphabet[stream.integer(letters)]!,
    ).join("");
    const found = Int32Array.from([...word].map((letter) => ids.get(letter)!));
    const count = table.apply(found, found.length);
    const names = [...ids.keys()], byId = new Map(names.map((name) => [ids.get(name)!, name]));
    const tokens = [...found.subarray(0, count)].map((id) => byId.get(id));
    assertEquals(tokens, mergeByDefinition(word, merges), JSON.stringify({ word, merges }));
  }
}

Deno.test("3,000 short words merge as defined, also where a merge ranks before its parts", () => {
  compare(new RandomStream(1, "short"), 3000, 40);
});

Deno.test("words of several windows merge as defined", () => {
  compare(new RandomStream(2, "long"), 5, 5000);
});
