/**
 * "Did you mean": the nearest known name to a mistyped one.
 *
 * Distance counts insertions, deletions, replacements and swaps of neighbours, because swapped
 * letters are the commonest slip of all.
 */
import type { FlagTable } from "./table.ts";

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

/**
 * The nearest of `names`, or nothing when even that one needs more than an edit for every four
 * letters: "gpu" is not near "cpu". Dashes before a flag are not counted.
 */
export function nearest(name: string, names: Iterable<string>): string | undefined {
  const bare = (text: string) => text.replace(/^-+/, "").toLowerCase();
  let found: string | undefined;
  let smallest = Infinity;
  for (const candidate of names) {
    const [a, b] = [bare(name), bare(candidate)];
    const distance = editDistance(a, b);
    const allowed = Math.floor(Math.max(a.length, b.length) / 4);
    if (distance <= allowed && distance < smallest) [found, smallest] = [candidate, distance];
  }
  return found;
}

/** Lists up to this length are worth printing whole. */
const SHORT_LIST = 12;

/** A hint for an unknown name: the nearest one, or the list if it is short. */
export function suggestionHint(name: string, names: readonly string[]): string | undefined {
  const near = nearest(name, names);
  if (near !== undefined) return `did you mean \`${near}\`?`;
  const isShort = names.length > 0 && names.length <= SHORT_LIST;
  return isShort ? `known: ${names.join(", ")}` : undefined;
}

/** Commands of other programs, and what they are called here. */
const PEER_COMMANDS = new Map(Object.entries({
  run: "chat",
  complete: "generate",
  finetune: "train",
  evaluate: "eval",
  benchmark: "bench",
  pull: "inspect --model OWNER/NAME",
  download: "inspect --model OWNER/NAME",
  list: "eval ls",
  ls: "eval ls",
  "list-tasks": "eval ls",
  show: "inspect",
  info: "inspect",
  quantize: "convert --quantize q4",
}));

/** A hint for the name that a command has in other programs. */
export function peerCommandHint(name: string): string | undefined {
  const meant = PEER_COMMANDS.get(name);
  return meant === undefined ? undefined : `did you mean \`${meant}\`?`;
}

/** Flags of other programs, and what they are called here; the first that a command has is meant. */
const PEERS = new Map<string, readonly string[]>(Object.entries({
  temp: ["temperature"],
  "max-new-tokens": ["max-tokens"],
  "n-predict": ["max-tokens"],
  "batch-size": ["batch", "max-batch"],
  "per-device-train-batch-size": ["micro-batch"],
  "max-steps": ["steps"],
  iters: ["steps"],
  "num-train-epochs": ["epochs"],
  "learning-rate": ["lr"],
  dataset: ["data"],
  "ctx-size": ["max-model-len", "max-length", "seq-len", "context"],
  pretrained: ["model"],
  n: ["max-tokens", "limit", "n-samples"],
  "model-args": ["model"],
  "num-fewshot": ["shots"],
  "device-map": ["device"],
  "load-in-4bit": ["quantize q4"],
  "load-in-8bit": ["quantize q8"],
}));

/** A hint for the name that a flag has in other programs. */
export function peerHint(name: string, table: FlagTable): string | undefined {
  const dashed = name.replaceAll("_", "-");
  if (dashed === "list-tasks") return peerCommandHint(dashed);
  const meant = PEERS.get(dashed)
    ?.find((ours) => Object.hasOwn(table, ours.split(" ")[0]!));
  return meant === undefined ? undefined : `did you mean \`--${meant}\`?`;
}
