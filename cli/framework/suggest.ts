/**
 * "Did you mean": the nearest known name to a mistyped one.
 *
 * Distance counts insertions, deletions, replacements and swaps of neighbours, because swapped
 * letters are the commonest slip of all.
 */

/** Optimal string alignment distance between two names. */
export function editDistance(a: string, b: string): number {
  let beforeLast: number[] = [];
  let last = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const same = a[i - 1] === b[j - 1];
      let best = Math.min(last[j]! + 1, row[j - 1]! + 1, last[j - 1]! + (same ? 0 : 1));
      const swapped = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1];
      if (swapped) best = Math.min(best, beforeLast[j - 2]! + 1);
      row.push(best);
    }
    beforeLast = last;
    last = row;
  }
  return last[b.length]!;
}

/** The nearest of `names`, or nothing when even that one is more than a third away. */
export function nearest(name: string, names: Iterable<string>): string | undefined {
  let found: string | undefined;
  let smallest = Math.max(1, Math.ceil(name.length / 3)) + 1;
  for (const candidate of names) {
    const distance = editDistance(name.toLowerCase(), candidate.toLowerCase());
    if (distance < smallest) [found, smallest] = [candidate, distance];
  }
  return found;
}

/** Lists up to this length are worth printing whole. */
const SHORT_LIST = 12;

/** A hint for an unknown name: the nearest one, then the list if short; else `otherwise`. */
export function suggestionHint(
  name: string,
  names: readonly string[],
  otherwise?: string,
): string | undefined {
  const near = nearest(name, names);
  const short = names.length > 0 && names.length <= SHORT_LIST;
  const list = short ? `known: ${names.join(", ")}` : undefined;
  if (near === undefined) return list ?? otherwise;
  return `did you mean \`${near}\`?${list === undefined ? "" : ` ${list}`}`;
}
