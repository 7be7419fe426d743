/** Sampling against a naive version that sorts everything, its distribution, seeds and speed. */
import { assert, assertEquals, assertThrows } from "@std/assert";
import { NumericalError } from "../../../core/base/errors.ts";
import { argmax, GREEDY, sample, type SamplingOptions } from "../../../core/base/sampling.ts";
import { RandomStream } from "../../../core/base/random.ts";

/** A stream whose next draw is known. */
function drawing(uniform: number): RandomStream {
  const stream = new RandomStream(0);
  stream.uniform = () => uniform;
  return stream;
}

/** Probabilities by id after all filters: the definition, without a thought for speed. */
function naiveProbabilities(logits: readonly number[], options: SamplingOptions): number[] {
  const peak = Math.max(...logits);
  let kept = logits
    .map((logit, id) => ({ id, weight: Math.exp((logit - peak) / options.temperature), logit }))
    .sort((a, b) => b.logit - a.logit || a.id - b.id);
  if (options.topK > 0) kept = kept.slice(0, options.topK);
  if (options.topP < 1) {
    const total = kept.reduce((sum, { weight }) => sum + weight, 0);
    let mass = 0;
    const last = kept.findIndex(({ weight }) => (mass += weight) >= options.topP * total);
    if (last >= 0) kept = kept.slice(0, last + 1);
  }
  kept = kept.filter(({ weight }) => weight >= options.minP);
  const total = kept.reduce((sum, { weight }) => sum + weight, 0);
  const probabilities = logits.map(() => 0);
  for (const { id, weight } of kept) probabilities[id] = weight / total;
  return probabilities;
}

/** Logits of many kinds: ordinary, flat, with ties, far apart, with impossible tokens. */
function randomLogits(random: RandomStream, size: number): number[] {
  const kind = random.integer(6);
  return Array.from({ length: size }, (_, id) => {
    const x = random.normal();
    if (kind === 1) return 0;
    if (kind === 2) return random.integer(4);
    if (kind === 3) return x * 1e4;
    if (kind === 4) return id > 0 && random.integer(3) === 0 ? -Infinity : x * 5;
    if (kind === 5) return id === 0 ? 3e38 : x * -1e30;
    return x * 3;
  });
}

/** Ids that draws on a fine grid reach, with the share of the grid that each takes. */
function observed(logits: readonly number[], options: SamplingOptions, steps: number): number[] {
  const shares = logits.map(() => 0);
  for (let i = 0; i < steps; i++) {
    shares[sample(logits, options, drawing((i + 0.5) / steps))]! += 1 / steps;
  }
  return shares;
}

Deno.test("greedy takes the largest logit, the lowest id among equal ones", () => {
  assertEquals(argmax([1, 3, 3, 2]), 1);
  assertEquals(argmax([-Infinity, -Infinity]), 0);
  assertEquals(argmax([-0, 0]), 0);
  const random = new RandomStream(0);
  assertEquals(sample([5, 9, 9], GREEDY, random), 1);
  assertEquals(random.position, 0, "greedy draws nothing");
});

Deno.test("a logit that is NaN is a numerical error, wherever it stands", () => {
  for (const at of [0, 1, 2]) {
    const logits = [3, 2, 1];
    logits[at] = NaN;
    for (const options of [GREEDY, { ...GREEDY, temperature: 1, topK: 2 }]) {
      const error = assertThrows(() => sample(logits, options, drawing(0.5)), NumericalError);
      assertEquals(
        error.message,
        `cannot choose a token: the model computed a NaN logit for token ${at}`,
      );
    }
  }
});

Deno.test("600 random cases agree with the naive version", () => {
  const random = new RandomStream(3, "sampling");
  const pick = <T>(values: readonly T[]) => values[random.integer(values.length)]!;
  const steps = 400;
  for (let round = 0; round < 600; round++) {
    const logits = randomLogits(random, pick([1, 2, 5, 40]));
    const options = {
      temperature: pick([0.01, 0.7, 1, 3, 100]),
      topK: pick([0, 0, 1, 3, 39, 1000]),
      topP: pick([1, 1, 1e-9, 0.3, 0.9, 0.999999]),
      minP: pick([0, 0, 0.05, 0.5, 1]),
    };
    const expected = naiveProbabilities(logits, options);
    const actual = observed(logits, options, steps);
    const about = JSON.stringify({ round, options, logits });
    actual.forEach((share, id) => {
      assert(share === 0 || expected[id]! > 0, `id ${id} must not be drawn: ${about}`);
      // A token's share of the grid differs from its probability by a step at either end.
      assert(Math.abs(share - expected[id]!) <= 2 / steps, `share of id ${id}: ${about}`);
    });
  }
});

Deno.test("the extreme draws stay inside the filters", () => {
  const options = { temperature: 1, topK: 3, topP: 0.99, minP: 0.01 };
  const logits = [0, 4, 3, 2, -1];
  assertEquals(sample(logits, options, drawing(2 ** -53)), 1);
  assertEquals(sample(logits, options, drawing(1 - 2 ** -53)), 3);
});

Deno.test("a vocabulary of 50 000 is not sorted as a whole", () => {
  const random = new RandomStream(5), size = 50_000;
  const shapes = {
    "a few likely tokens": Float32Array.from({ length: size }, () => random.normal() * 4),
    "flat": Float32Array.from({ length: size }, () => random.normal()),
  };
  for (const [shape, logits] of Object.entries(shapes)) {
    for (const filter of [{ topK: 50 }, { topP: 0.3 }, { minP: 0.05 }, { topK: 50, topP: 0.9 }]) {
      let reads = 0;
      const counted = new Proxy(logits, { get: (from, key) => (reads++, Reflect.get(from, key)) });
      sample(counted, { ...GREEDY, temperature: 1, ...filter }, drawing(0.5));
      // A sort reads two logits in each of some 15 comparisons per token.
      assert(reads < 15 * size, `${shape}, ${JSON.stringify(filter)}: ${reads / size} per token`);
    }
  }
});
