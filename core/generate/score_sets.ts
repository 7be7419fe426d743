/**
 * Scores sets of sequences that begin alike, such as the choices of a question, and computes every
 * shared prefix once.
 *
 * Work falls into three layers, each continuing the keys and values of the one before: a *root* that
 * many sets share (the solved examples of a subject), the *branch* that the sequences of one set share
 * (the question), and the *leaves*, where they part. Leaves with the same tokens to be read are one: the
 * letters of a question differ only in what is asked of its last token. A set with one leaf needs no
 * branch. Sets are batched side by side, longest first.
 */
import { commonLength, PrefixCache } from "./prefix_cache.ts";
import type { Engine } from "./engine.ts";
import type { KvCache } from "./kv_cache.ts";
import { checkTokens, prefillPrompt } from "./prefill.ts";
import {
  emptyScore,
  feedPieces,
  finishScore,
  type Piece,
  type Score,
  type ScoreRequest,
  slotsFor,
} from "./score.ts";

/** Sequences scored together. */
export type ScoreSet = readonly ScoreRequest[];

/** Fewer shared tokens than this are not worth a root. */
const LEAST_ROOT = 32;

/** A root may lose this share of itself to take in one more set. */
const ROOT_LOSS = 0.5;

/** Leaves are short, so their lengths are rounded up to a small multiple. */
const LEAF_STEP = 8;

/** Order in which a set is read. */
interface Plan {
  readonly index: number;
  readonly set: ScoreSet;
  /** Tokens all its sequences begin with and of which no result is wanted; none for one leaf. */
  readonly branch: readonly number[];
  /** Tokens a root may take: no result is wanted in them. */
  readonly silent: number;
  readonly leaves: readonly Leaf[];
}

/** Tokens to read for some sequences of a set. */
interface Leaf {
  readonly tokens: readonly number[];
  readonly members: readonly number[];
}

/** Sets after one root. */
interface RootGroup {
  readonly rootTokens: readonly number[];
  readonly plans: readonly Plan[];
}

/** Options of scoring sets. */
export interface SetOptions {
  readonly batch: number;
  readonly skip?: (index: number) => boolean;
  /** Called after every chunk with the tokens that are read, and all to be read. */
  readonly onRead?: (done: number, total: number) => void;
}

/**
 * Scores all sets, in an order of its own choice, with up to `batch` sequences side by side. Batches
 * depend only on the sets, so the same sets give the same numbers although `skip` leaves out some; a
 * batch is computed when one of its sets is wanted.
 * @throws {DataError} for sequences the model cannot read
 */
export async function* scoreSets(
  engine: Engine,
  sets: readonly ScoreSet[],
  { batch: rows, skip, onRead }: SetOptions,
): AsyncGenerator<{ index: number; scores: Score[] }> {
  for (const { tokens } of sets.flat()) {
    checkTokens(engine.config, tokens, "score a sequence", { unread: 1 });
  }
  const isWanted = ({ index }: Plan) => !skip?.(index);
  const groups = groupByRoot(sets.map(planOf)).map(({ rootTokens, plans }) => ({
    rootTokens,
    batches: batchesOf(plans, rows).filter((batch) => batch.some(isWanted)),
  })).filter(({ batches }) => batches.length > 0);
  const total = groups.reduce(
    (sum, { rootTokens: { length }, batches }) =>
      batches.flat().reduce((sum, plan) => sum + tokensBehind(length, plan), sum + length),
    0,
  );
  let done = 0;
  const onChunk = (tokens: number) => onRead?.(done += tokens, total);
  using prefixes = new PrefixCache();
  for (const { rootTokens, batches } of groups) {
    for (const batch of batches) {
      // A later batch computes but the last token of the root.
      const onRoot = batch === batches[0] ? onChunk : undefined;
      const root = rootTokens.length > 0
        ? (await prefillPrompt(engine, rootTokens, prefixes, onRoot)).cache
        : undefined;
      const scores = await scorePlans(engine, batch, root, rootTokens.length, onChunk);
      for (const { index } of batch.filter(isWanted)) yield { index, scores: scores.get(index)! };
    }
  }
}

/** Tokens of a set that are read after a root. */
function tokensBehind(root: number, { branch, leaves }: Plan): number {
  const start = Math.max(root, branch.length);
  return leaves.reduce((sum, { tokens }) => sum + tokens.length - start, start - root);
}

function planOf(set: ScoreSet, index: number): Plan {
  const [first, ...others] = set as [ScoreRequest, ...ScoreRequest[]];
  const silent = Math.min(...set.map(({ from }) => from - 1));
  const lengths = others.map(({ tokens }) => commonLength(first.tokens, tokens));
  const shared = Math.min(silent, ...lengths);
  const read = set.map(({ tokens }) => tokens.slice(0, -1));
  const leaves = Map.groupBy(set.keys(), (i) => read[i]!.slice(shared).join());
  const isOne = leaves.size === 1;
  return {
    index,
    set,
    branch: isOne ? [] : first.tokens.slice(0, shared),
    silent: isOne ? silent : shared,
    leaves: [...leaves.values()].map((members) => ({ tokens: read[members[0]!]!, members })),
  };
}

/** Groups sets by what they begin with; those that stand alone come last, without a root. */
function groupByRoot(plans: readonly Plan[]): RootGroup[] {
  const tokensOf = (plan: Plan) => plan.leaves[0]!.tokens;
  const sorted = [...plans].sort((a, b) => compareTokens(tokensOf(a), tokensOf(b)));
  const groups: RootGroup[] = [];
  const alone: Plan[] = [];
  let members: Plan[] = [];
  let rootLength = 0;
  const close = () => {
    if (members.length < 2) alone.push(...members);
    else groups.push({ rootTokens: tokensOf(members[0]!).slice(0, rootLength), plans: members });
    members = [];
  };
  for (const plan of sorted) {
    const first = members[0];
    const shared = first === undefined
      ? 0
      : Math.min(rootLength, plan.silent, commonLength(tokensOf(first), tokensOf(plan)));
    const least = members.length < 2 ? LEAST_ROOT : Math.max(LEAST_ROOT, rootLength * ROOT_LOSS);
    if (shared < least) {
      close();
      rootLength = plan.silent;
    } else rootLength = shared;
    members.push(plan);
  }
  close();
  return alone.length > 0 ? [...groups, { rootTokens: [], plans: alone }] : groups;
}

function compareTokens(a: readonly number[], b: readonly number[]): number {
  const at = commonLength(a, b);
  return (a[at] ?? -1) - (b[at] ?? -1);
}

/**
 * Sets of like length side by side, at most `rows` leaves, but at least one set. Those without a branch
 * stay among themselves: their one leaf is a whole question, to which short leaves would be padded.
 */
function batchesOf(plans: readonly Plan[], rows: number): Plan[][] {
  const length = ({ leaves, branch }: Plan) => branch.length || leaves[0]!.tokens.length;
  const byKind = Map.groupBy(plans, ({ branch }) => branch.length > 0);
  return [...byKind.values()].flatMap((alike) => {
    const sorted = alike.sort((a, b) => length(b) - length(a) || a.index - b.index);
    const batches: Plan[][] = [];
    let leaves = Infinity;
    for (const plan of sorted) {
      leaves += plan.leaves.length;
      if (leaves > rows) {
        batches.push([]);
        leaves = plan.leaves.length;
      }
      batches.at(-1)!.push(plan);
    }
    return batches;
  });
}

/** Reads a batch after its root; scores by the index of the set. */
async function scorePlans(
  engine: Engine,
  plans: readonly Plan[],
  root: KvCache | undefined,
  rootLength: number,
  onChunk: (tokens: number) => void,
): Promise<Map<number, Score[]>> {
  const scores = plans.map(({ set }) => set.map(emptyScore));
  using branchCache = await readBranches(engine, plans, root, rootLength, onChunk);
  const leaves = plans.flatMap((plan, at) => plan.leaves.map((leaf) => ({ ...leaf, plan, at })));
  const pieces = leaves.map(({ tokens, members, plan }): Piece & { asked: [number, number][] } => {
    const start = Math.max(rootLength, plan.branch.length);
    const asked = members.flatMap((member) => {
      const { tokens: all, from } = plan.set[member]!;
      return all.slice(from).map((_, i): [number, number] => [member, from + i]);
    });
    const wanted = asked.map(([member, place]) => ({
      at: place - 1 - start,
      next: plan.set[member]!.tokens[place]!,
    }));
    return { start, tokens: tokens.slice(start), wanted, asked };
  });
  using cache = engine.createCache(pieces.length, slotsFor(pieces, LEAF_STEP));
  const source = branchCache ?? root;
  if (source) {
    const used = Math.max(...pieces.map(({ start }) => start));
    cache.copyFrom(source, leaves.map(({ at }, b) => [branchCache ? at : 0, b]), used);
  }
  await feedPieces(engine, cache, pieces, (b, i, { logprob, isBest }) => {
    const [member, place] = pieces[b]!.asked[i]!;
    const { plan, at } = leaves[b]!;
    const score = scores[at]![member]!;
    score.tokenLogprobs[place - plan.set[member]!.from] = logprob;
    score.isGreedy &&= isBest;
  }, { step: LEAF_STEP, onChunk });
  return new Map(plans.map(({ index }, at) => [index, scores[at]!.map(finishScore)]));
}

/** Keys and values of every set's branch, one sequence each; undefined where no set has more than a root. */
async function readBranches(
  engine: Engine,
  plans: readonly Plan[],
  root: KvCache | undefined,
  rootLength: number,
  onChunk: (tokens: number) => void,
): Promise<KvCache | undefined> {
  const pieces = plans.map(({ branch }): Piece => ({
    start: rootLength,
    tokens: branch.slice(rootLength),
    wanted: [],
  }));
  if (pieces.every(({ tokens }) => tokens.length === 0)) return undefined;
  const cache = engine.createCache(plans.length, slotsFor(pieces));
  if (root) cache.copyFrom(root, plans.map((_, b) => [0, b]), rootLength);
  await feedPieces(engine, cache, pieces, () => {}, { onChunk });
  return cache;
}
