/**
 * Statistics of stream weights and of the streams' residuals, on numbers whose answers are known.
 */
import { assert, assertAlmostEquals, assertEquals } from "@std/assert";
import { diversityOf } from "../../../core/analysis/diversity.ts";
import {
  describeStreams,
  entropyOf,
  type WeightedText,
  winnerOf,
} from "../../../core/analysis/streams.ts";
import { RandomStream } from "../../../core/base/random.ts";

/** A text won by the named streams, each with weight 0.7 of the sum. */
function wonBy(letters: string, P: number): WeightedText {
  const rest = 0.3 / (P - 1);
  const weights = [...letters].map((letter) =>
    Array.from({ length: P }, (_, p) => p === letter.charCodeAt(0) - 65 ? 0.7 : rest)
  );
  return { tokens: weights.map((_, t) => t), weights };
}

Deno.test("the winner is the first of equals; entropy is in nats", () => {
  assertEquals([winnerOf([0.2, 0.5, 0.3]), winnerOf([0.4, 0.4, 0.2])], [1, 0]);
  assertAlmostEquals(entropyOf([0.25, 0.25, 0.25, 0.25]), Math.log(4), 1e-12);
  assertEquals(entropyOf([0, 1, 0]), 0);
  assertAlmostEquals(entropyOf([0.5, 0.5, 0]), Math.LN2, 1e-12);
});

Deno.test("shares, mean weights, entropy and runs of a text with four runs", () => {
  const result = describeStreams([wonBy("AAABBAAC", 3)]);
  assertEquals([result.tokens, result.shares], [8, [5 / 8, 2 / 8, 1 / 8]]);
  const mean = (wins: number) => (wins * 0.7 + (8 - wins) * 0.15) / 8;
  result.meanWeights.forEach((x, p) => assertAlmostEquals(x, mean([5, 2, 1][p]!), 1e-12));
  const entropy = -0.7 * Math.log(0.7) - 0.3 * Math.log(0.15);
  assertAlmostEquals(result.meanEntropy, entropy, 1e-12);
  assertAlmostEquals(result.entropyShare, entropy / Math.log(3), 1e-12);
  assertEquals(result.meanRunLength, 2);
  const runs = 1 + 7 * (1 - (25 + 4 + 1) / 64);
  assertAlmostEquals(result.chanceRunLength, 8 / runs, 1e-12);
  assertAlmostEquals(result.locality, 2 / (8 / runs), 1e-12);
});

Deno.test("runs end with their text; a stream that always wins shows no locality", () => {
  const [one, two] = [[wonBy("AAAA", 2)], [wonBy("AA", 2), wonBy("AA", 2)]].map(describeStreams);
  assertEquals([one!.meanRunLength, one!.chanceRunLength, one!.locality], [4, 4, 1]);
  assertEquals([two!.meanRunLength, two!.chanceRunLength, two!.locality], [2, 2, 1]);
});

Deno.test("diversity survives probabilities that hardly vary", () => {
  const rows = [1, 2, 4, 7].map((x) => [0.5 + 1e-9 * x, 0.5 + 2e-9 * x].map(Math.log));
  const { rho, meanResiduals } = diversityOf([{ streams: rows, model: [] }])!;
  assertAlmostEquals(rho!, 1, 1e-4);
  assertAlmostEquals(meanResiduals[0]!, -0.5 + 3.5e-9, 1e-15);
});

Deno.test("diversity of equal and of opposite streams", () => {
  const probabilities = [0.1, 0.4, 0.3, 0.8];
  const predictions = (rows: number[][]) => [{
    streams: rows.map((row) => row.map(Math.log)),
    model: rows.map((row) => Math.log(row[0]!)),
  }];
  const equal = diversityOf(predictions(probabilities.map((p) => [p, p])))!;
  assertAlmostEquals(equal.rho!, 1, 1e-12);
  assertEquals([equal.tokens, equal.rhoStandardError], [4, undefined]);
  assertAlmostEquals(equal.meanResiduals[0]!, 0.4 - 1, 1e-12);
  const loss = -probabilities.reduce((sum, p) => sum + Math.log(p), 0) / 4;
  for (const value of [...equal.streamLosses, equal.modelLoss, equal.meanMixtureLoss]) {
    assertAlmostEquals(value, loss, 1e-12);
  }
  const opposite = diversityOf(predictions(probabilities.map((p) => [p, 1 - p])))!;
  assertAlmostEquals(opposite.rho!, -1, 1e-12);
  assertAlmostEquals(opposite.meanMixtureLoss, Math.LN2, 1e-12);
  const other = -probabilities.reduce((sum, p) => sum + Math.log(1 - p), 0) / 4;
  opposite.streamLosses.forEach((x, i) => assertAlmostEquals(x, [loss, other][i]!, 1e-12));
  // Three pairs are equal, and three opposite.
  const four = diversityOf(predictions(probabilities.map((p) => [p, p, p, 1 - p])))!;
  assertAlmostEquals(four.rho!, 0, 1e-12);
});

Deno.test("diversity of known correlation: a common part of half the variance gives 0.5", () => {
  const random = new RandomStream(9, 2);
  const draw = () => random.integer(1000) / 4000;
  const rows = Array.from({ length: 20_000 }, () => {
    const common = draw();
    return [0, 1, 2, 3].map(() => Math.log(0.25 + common + draw()));
  });
  const { rho, rhoStandardError } = diversityOf([{ streams: rows, model: [] }])!;
  assertAlmostEquals(rho!, 0.5, 0.02);
  assert(rhoStandardError! > 0 && rhoStandardError! < 0.02);
});

Deno.test("nothing predicted has no diversity; streams that never vary have no correlation", () => {
  assertEquals(diversityOf([{ streams: [], model: [] }]), undefined);
  const same = diversityOf([{ streams: [[-1, -2], [-1, -2]], model: [-1, -1] }])!;
  assertEquals([same.rho, same.rhoStandardError], [undefined, undefined]);
});
