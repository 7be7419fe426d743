/** Requests of all kinds with drafts and without, whose events must be equal. */
import { assert, assertEquals } from "@std/assert";
import { RandomStream } from "../../../core/base/random.ts";
import { GREEDY, type SamplingOptions } from "../../../core/base/sampling.ts";
import type { Engine } from "../../../core/generate/engine.ts";
import type { TokenConstraint } from "../../../core/generate/logit_rules.ts";
import type { GenerationRequest, SchedulerEvent } from "../../../core/generate/request.ts";
import { Scheduler, type SchedulerOptions } from "../../../core/generate/scheduler.ts";
import { Drafter, StepTimes } from "../../../core/generate/speculation.ts";
import { prompt, request } from "../engines.ts";

/** Events of a request without what tells of drafts, and the counts of these. */
export interface Observed {
  readonly events: unknown[][];
  drafted: number;
  kept: number;
}

/** Runs requests; request i is cancelled at its `cancelAt(i)`th token. */
export async function observe(
  engine: Engine,
  requests: readonly GenerationRequest[],
  options: SchedulerOptions,
  cancelAt: (index: number) => number | undefined = () => undefined,
): Promise<Observed> {
  using scheduler = new Scheduler(engine, options);
  requests.forEach((one, index) => scheduler.add(index, one));
  const observed: Observed = { events: requests.map(() => []), drafted: 0, kept: 0 };
  const take = (event: SchedulerEvent) => {
    if (event.kind === "failed") throw event.error;
    const { draft, ...rest } = event.kind === "token" ? event : { ...event, draft: undefined };
    observed.drafted += draft?.tokens ?? 0;
    observed.kept += Number(draft?.isKept ?? false);
    if (event.kind !== "prefilled") observed.events[event.index]!.push(rest);
    if (observed.events[event.index]!.length === cancelAt(event.index)) {
      scheduler.cancel(event.index);
    }
  };
  while (!scheduler.isIdle) for await (const event of scheduler.round()) take(event);
  return observed;
}

/** Tokens of observed requests. */
export function tokensIn({ events }: Observed): number[][] {
  const all = events as { kind: string; token: number }[][];
  return all.map((own) => own.flatMap(({ kind, token }) => kind === "token" ? [token] : []));
}

/**
 * Drafts from known answers instead of the text, each token wrong with a probability of `wrong`, in steps of
 * random sizes, until it is disposed of.
 */
export function draftFrom(
  answers: readonly (readonly number[])[],
  { wrong, random }: { readonly wrong: number; readonly random: RandomStream },
): Disposable {
  const { draft, push } = Drafter.prototype, { best } = StepTimes.prototype;
  const texts = new WeakMap<Drafter, number[]>();
  Drafter.prototype.push = function (token) {
    texts.getOrInsertComputed(this, () => []).push(token);
    push.call(this, token);
  };
  Drafter.prototype.draft = function (count) {
    const text = texts.get(this)!;
    const known = answers.filter((answer) => text.every((token, i) => answer[i] === token));
    const next = known[random.integer(Math.max(1, known.length))]?.slice(text.length) ?? [];
    return Array.from(
      { length: Math.max(0, count) },
      (_, i) => random.uniform() < wrong || next[i] === undefined ? random.integer(480) : next[i],
    );
  };
  StepTimes.prototype.best = (drafters, lengths, { most }) => {
    const longest = Math.min(1 + Math.max(...lengths), Math.floor(most / drafters.length));
    return 1 + random.integer(Math.max(1, longest));
  };
  return {
    [Symbol.dispose]() {
      Object.assign(Drafter.prototype, { draft, push });
      StepTimes.prototype.best = best;
    },
  };
}

/** Allows about half of all tokens, others after every text, some of them only after a moment. */
function constraintOf(seed: number, vocabulary: number): TokenConstraint {
  const maskOf = (tokens: readonly number[]) => {
    const random = new RandomStream(seed, tokens.join());
    return Int32Array.from({ length: Math.ceil(vocabulary / 32) }, () => random.word());
  };
  return {
    first: maskOf([]),
    after: async (tokens) => {
      const waits = new RandomStream(seed, `wait ${tokens}`).integer(4);
      if (waits > 1) await new Promise((resolve) => setTimeout(resolve, 15 * (waits - 1)));
      return maskOf(tokens);
    },
  };
}

/** A request with random options of all kinds; two of the same seed are equal. */
export function randomRequest(seed: number, vocabulary: number): GenerationRequest {
  const random = new RandomStream(seed, "request");
  const one = <T>(...choices: T[]) => choices[random.integer(choices.length)]!;
  const sampling: SamplingOptions = {
    ...GREEDY,
    temperature: one(0, 0, 0.4, 1.3),
    topK: one(0, 0, 20),
    topP: one(1, 0.9),
    minP: one(0, 0.05),
    ...one<Partial<SamplingOptions>>(
      {},
      { repetitionPenalty: 1.3 },
      { frequencyPenalty: 0.5, presencePenalty: 0.2 },
      { logitBias: new Map([[random.integer(400), 5], [random.integer(400), -100]]) },
    ),
  };
  const stopAt = one(99, 99, 9), ids = one(0, 0, 12);
  let count = 0;
  const tokens = prompt(seed, one(1, 5, 20, 122));
  // Half of the prompts repeat themselves.
  return request(one(tokens, [...tokens, ...tokens.slice(-3), ...tokens]), {
    maxTokens: 1 + random.integer(24),
    sampling,
    random: new RandomStream(seed, "draws"),
    eosTokenIds: Array.from({ length: ids }, (_, i) => 40 * i),
    shouldStop: () => ++count === stopAt,
    streamWeights: one(true, false),
    ...one({}, {}, { topLogprobs: 3 }),
    ...one({}, {}, {}, { constraint: constraintOf(seed, vocabulary) }),
  });
}

/** Compares `count` random requests on an engine, some at a time, with drafts that are right or wrong. */
export async function compareRandom(engine: Engine, first: number, count: number): Promise<void> {
  const random = new RandomStream(first, "drafts"), { vocabSize } = engine.config;
  let drafted = 0, kept = 0;
  for (let at = first; at < first + count;) {
    const batch = 1 + random.integer(4), seeds = Array.from({ length: 2 * batch }, () => at++);
    const requests = () => seeds.map((seed) => randomRequest(seed, vocabSize));
    const cancelled = new Map([[random.integer(8), 1 + random.integer(6)]]);
    const cancelAt = (index: number) => cancelled.get(index);
    const plain = await observe(engine, requests(), { batch }, cancelAt);
    const options = { batch, speculate: 1 + random.integer(15), prefixCacheBytes: 1 << 20 };
    using _ = draftFrom(tokensIn(plain), { wrong: random.integer(4) / 5, random });
    const speculated = await observe(engine, requests(), options, cancelAt);
    assertEquals(speculated.events, plain.events, `seeds ${seeds}`);
    drafted += speculated.drafted;
    kept += speculated.kept;
  }
  assert(kept > count && drafted > kept, `${kept} of ${drafted} drafted tokens kept`);
}
