/**
 * Beam search for one prompt, by the rules of Hugging Face transformers.
 *
 * Each step ranks K = max(2, 1 + end tokens) · beams candidates. A candidate that ends in an end token,
 * or where the caller's stop strings say so, leaves the open set, and becomes a finished sequence only
 * if it ranks among the first `beams`. A
 * finished score is the sum of log-probabilities divided by (new tokens)^penalty. When `beams` sequences
 * are finished, `earlyStopping` decides how the search ends.
 *
 * Beams are sequences of one batch; how they get from one row to another is in `beam_cache.ts`.
 */
import type { HostArray } from "../runtime/device.ts";
import { openBeamCache } from "./beam_cache.ts";
import type { Engine } from "./engine.ts";
import { logSumExp } from "./logprobs.ts";
import { checkTokens, prefillPrompt } from "./prefill.ts";
import { PrefixCache } from "./prefix_cache.ts";
import {
  applyLogitRules,
  applyMask,
  hasLogitRules,
  type LogitRules,
  SeenTokens,
  type TokenConstraint,
  type TokenMask,
} from "./logit_rules.ts";

/** Options of the search. */
export interface BeamOptions extends LogitRules {
  readonly beams: number;
  readonly maxTokens: number;
  readonly lengthPenalty: number;
  /**
   * Condition to end the search once `beams` sequences are finished. true: alone. false, the default: the
   * best open one, by its present length, cannot beat the worst of them. "never": it cannot at its
   * greatest length, which a positive length penalty favours.
   */
  readonly earlyStopping?: boolean | "never";
  /** Limits which tokens may come. */
  readonly constraint?: TokenConstraint;
  readonly eosTokenIds: readonly number[];
  /** Asked about new tokens; true ends a sequence there, as an end token does. */
  readonly shouldStop?: (tokens: readonly number[]) => boolean;
}

/** A finished sequence. */
export interface BeamResult {
  /** New tokens, end token included. */
  readonly tokens: number[];
  /** Sum of log-probabilities / length^penalty. */
  readonly score: number;
  readonly reason: "eos" | "stop" | "length";
}

interface Hypothesis {
  readonly tokens: readonly number[];
  readonly sum: number;
}

interface Candidate {
  readonly beam: number;
  readonly token: number;
  readonly sum: number;
}

/**
 * Searches; results best first, `beams` of them, or one empty result when the prompt fills the context.
 * Throws `DataError` for an unusable prompt.
 */
export async function beamSearch(
  engine: Engine,
  prompt: readonly number[],
  options: BeamOptions,
  prefixes?: PrefixCache,
): Promise<BeamResult[]> {
  const { beams, lengthPenalty, eosTokenIds, earlyStopping = false } = options;
  checkTokens(engine.config, prompt, "continue a prompt");
  const { vocabSize, maxPositionEmbeddings } = engine.config;
  const room = maxPositionEmbeddings - prompt.length;
  const maxTokens = Math.min(options.maxTokens, room);
  if (maxTokens < 1) return [{ tokens: [], score: 0, reason: "length" }];
  const perStep = Math.max(2, 1 + eosTokenIds.length) * beams;
  const finished: BeamResult[] = [];
  const finish = (tokens: readonly number[], sum: number, reason: BeamResult["reason"]) => {
    finished.push({ tokens: [...tokens], score: sum / tokens.length ** lengthPenalty, reason });
    finished.sort((a, b) => b.score - a.score);
    finished.length = Math.min(finished.length, beams);
  };

  const ending = (tokens: readonly number[]) =>
    eosTokenIds.includes(tokens.at(-1)!)
      ? "eos"
      : options.shouldStop?.(tokens)
      ? "stop"
      : undefined;

  using own = new PrefixCache();
  const prefilled = await prefillPrompt(engine, prompt, prefixes ?? own);
  let { outputs } = prefilled;
  let open: Hypothesis[] = [{ tokens: [], sum: 0 }];
  using caches = openBeamCache(engine, prefilled.cache, beams, prompt.length);
  for (let length = 1; length <= maxTokens; length++) {
    const masks = await masksOf(options.constraint, open);
    const logits = outputs.get("logits")!;
    const candidates = topCandidates(logits, vocabSize, open, perStep, {
      prompt,
      rules: options,
      masks,
    });
    const next: { hypothesis: Hypothesis; from: number }[] = [];
    candidates.forEach(({ beam, token, sum }, rank) => {
      const tokens = [...open[beam]!.tokens, token];
      const reason = ending(tokens) ?? (length === maxTokens ? "length" : undefined);
      if (reason !== undefined) {
        if (rank < beams) finish(tokens, sum, reason);
      } else if (next.length < beams) next.push({ hypothesis: { tokens, sum }, from: beam });
    });
    const best = next[0]?.hypothesis;
    if (!best) break;
    if (finished.length === beams) {
      if (earlyStopping === true) break;
      const reach = earlyStopping === "never" && lengthPenalty > 0 ? maxTokens : length;
      if (best.sum / reach ** lengthPenalty <= finished.at(-1)!.score) break;
    }
    open = next.map(({ hypothesis }) => hypothesis);
    const used = prompt.length + length - 1;
    const { cache, rows, table } = caches.select(next.map(({ from }) => from), used);
    const ids: number[][] = [];
    for (const [b, row] of rows.entries()) ids[row] = [(open[b] ?? open[0]!).tokens.at(-1)!];
    outputs = await engine.forward(cache, {
      ids,
      start: rows.map(() => used),
      select: rows,
      table,
    });
  }
  return finished;
}

/** Returns the masks of tokens after each hypothesis; undefined where nothing limits it. */
async function masksOf(
  constraint: TokenConstraint | undefined,
  open: readonly Hypothesis[],
): Promise<readonly TokenMask[] | undefined> {
  return constraint &&
    await Promise.all(
      open.map(({ tokens }) => tokens.length === 0 ? constraint.first : constraint.after(tokens)),
    );
}

/** The best continuations of all open hypotheses, best first; ties by beam, then token. */
function topCandidates(
  logits: HostArray,
  V: number,
  open: readonly Hypothesis[],
  count: number,
  { prompt, rules, masks }: {
    readonly prompt: readonly number[];
    readonly rules: LogitRules;
    readonly masks: readonly TokenMask[] | undefined;
  },
): Candidate[] {
  const best: Candidate[] = [];
  open.forEach(({ tokens, sum: base }, beam) => {
    const own = logits.subarray(beam * V, (beam + 1) * V);
    const total = logSumExp(own, "rank tokens");
    const offset = base - total;
    const changed = hasLogitRules(rules)
      ? applyLogitRules(own, rules, new SeenTokens(prompt, tokens), total)
      : own;
    const row = masks ? applyMask(changed, masks[beam]!) : changed;
    for (let token = 0; token < V; token++) {
      const sum = row[token]! + offset;
      if (sum === -Infinity) continue;
      if (best.length === count && sum <= best[count - 1]!.sum) continue;
      let at = best.length;
      while (at > 0 && best[at - 1]!.sum < sum) at--;
      best.splice(at, 0, { beam, token, sum });
      if (best.length > count) best.pop();
    }
  });
  return best;
}
