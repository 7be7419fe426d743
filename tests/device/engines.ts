/** Requests of tests to an engine, and what it makes of them. */
import { GREEDY } from "../../core/base/sampling.ts";
import { RandomStream } from "../../core/base/random.ts";
import { Engine, type ForwardInput } from "../../core/generate/engine.ts";
import {
  type FinishReason,
  generate,
  type GenerationRequest,
} from "../../core/generate/generate.ts";
import type { SchedulerEvent } from "../../core/generate/request.ts";
import { Scheduler, type SchedulerOptions } from "../../core/generate/scheduler.ts";
import type { Score } from "../../core/generate/score.ts";
import { type ScoreSet, scoreSets } from "../../core/generate/score_sets.ts";
import type { HostArray } from "../../core/runtime/device.ts";

/** Tokens that differ by index, and in number unless one is given. */
export function prompt(index: number, length: number = 3 + index * 5 % 11): number[] {
  const random = new RandomStream(index, "prompt");
  return Array.from({ length }, () => random.integer(480));
}

/** A request for 8 greedy tokens, with changes. */
export function request(
  tokens: readonly number[],
  changes: Partial<GenerationRequest> = {},
): GenerationRequest {
  const random = new RandomStream(0);
  return { tokens, maxTokens: 8, sampling: GREEDY, random, eosTokenIds: [], ...changes };
}

/** Tokens of a request, and why they ended. */
export interface Generated {
  readonly tokens: number[];
  reason?: FinishReason;
  error?: unknown;
}

/** Generates for requests, at most `batch` at a time. */
export async function generated(
  engine: Engine,
  requests: Iterable<GenerationRequest> | AsyncIterable<GenerationRequest>,
  batch: number,
): Promise<Generated[]> {
  const results: Generated[] = [];
  for await (const event of generate(engine, requests, { batch })) {
    const result = results[event.index] ??= { tokens: [] };
    if (event.kind === "token") result.tokens.push(event.token);
    if (event.kind === "done") result.reason = event.reason;
    if (event.kind === "failed") result.error = event.error;
  }
  return results;
}

/** Tokens generated for each request; an error of one is thrown. */
export async function tokensOf(
  engine: Engine,
  requests: readonly GenerationRequest[],
  batch = 1,
): Promise<number[][]> {
  return (await generated(engine, requests, batch)).map(({ tokens, error }) => {
    if (error) throw error;
    return tokens;
  });
}

/** Events of a scheduler until it has nothing to do. */
export async function runAll(scheduler: Scheduler): Promise<SchedulerEvent[]> {
  const events: SchedulerEvent[] = [];
  while (!scheduler.isIdle) events.push(...await Array.fromAsync(scheduler.round()));
  return events;
}

/** Runs requests on a scheduler, or on one of their own for an engine. */
export async function scheduled(
  on: Engine | Scheduler,
  requests: readonly GenerationRequest[],
  options: Partial<SchedulerOptions> = {},
): Promise<{ tokens: number[][]; cached: number[]; events: SchedulerEvent[] }> {
  using own = on instanceof Engine ? new Scheduler(on, { batch: 8, ...options }) : undefined;
  const scheduler = own ?? on as Scheduler;
  const tokens: number[][] = requests.map(() => []), cached: number[] = [];
  requests.forEach((request, index) => scheduler.add(index, request));
  const events = await runAll(scheduler);
  for (const event of events) {
    if (event.kind === "token") tokens[event.index]!.push(event.token);
    if (event.kind === "prefilled") cached[event.index] = event.cached;
    if (event.kind === "failed") throw event.error;
  }
  return { tokens, cached, events };
}

/** Outputs of whole texts of one length in one step, of every token unless `input` selects some. */
export async function pass(
  engine: Engine,
  ids: readonly (readonly number[])[],
  input: Partial<ForwardInput> = {},
  options?: Parameters<Engine["forward"]>[2],
  slots = ids[0]!.length,
): Promise<ReadonlyMap<string, HostArray>> {
  using cache = engine.createCache(ids.length, slots);
  const select = [...ids.flat().keys()];
  return await engine.forward(cache, { ids, start: ids.map(() => 0), select, ...input }, options);
}

/** Logits of whole texts, which later steps leave as they are. */
export async function logitsOf(
  engine: Engine,
  ids: readonly (readonly number[])[],
  select = [...ids.flat().keys()],
): Promise<HostArray> {
  return (await pass(engine, ids, { select })).get("logits")!.slice();
}

/** Index of the largest element. */
export const largest = (values: ArrayLike<number>): number =>
  Array.from(values).indexOf(Math.max(...Array.from(values)));

/** Scores of sets by index, but of those that are skipped. */
export async function scoresOf(
  engine: Engine,
  sets: readonly ScoreSet[],
  options: Parameters<typeof scoreSets>[2],
): Promise<Score[][]> {
  const found: Score[][] = [];
  for await (const { index, scores } of scoreSets(engine, sets, options)) found[index] = scores;
  return found;
}
