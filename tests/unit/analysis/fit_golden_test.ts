/** Protects the scaling-law fit: optimum, answers, refits and the paper's printed numbers. */
import { assert, assertEquals, assertThrows } from "@std/assert";
import { DATA_SETS } from "../../../core/analysis/cost_family.ts";
import { assess, bootstrap, fitLaw, intervalOf, refit } from "../../../core/analysis/fit.ts";
import {
  equivalentParameters,
  parametersForLoss,
  predictLoss,
  streamFactor,
  streamsForLoss,
} from "../../../core/analysis/law.ts";
import { parseObservations } from "../../../core/analysis/observations.ts";
import { DataError } from "../../../core/base/errors.ts";
import { readFixture } from "../../fixtures.ts";

const GOLDEN = readFixture("analysis/scaling-law.json").datasets["stack-v2-python"];
const { observations, laws } = DATA_SETS["stack-v2-python"];
/** Parameters of the laws of the paper. */
const PARAMETERS = ["E", "A", "alpha", "stream"] as const;

const FIT = fitLaw(observations, "log");

function assertClose(found: number | undefined, expected: number, relative: number, where = "") {
  const error = Math.abs(found! - expected);
  assert(error <= relative * Math.abs(expected), `${where}: found ${found}, expected ${expected}`);
}

Deno.test("the theoretical law has the spec's numbers, from every start", () => {
  const { law, huberLoss, r2, starts, startsConverged } = fitLaw(observations, "theoretical");
  for (const name of PARAMETERS) assertClose(law[name], laws.theoretical[name], 2e-3, name);
  assertEquals((huberLoss * 1e5).toFixed(3), "5.259");
  assertEquals([r2.toFixed(4), starts, startsConverged], ["0.9959", 300, 300]);
});

Deno.test("the Pile: all starts of both laws, near what the paper prints, with its last digits", () => {
  const pile = DATA_SETS.pile;
  assertEquals(pile.observations.length, 24);
  const expected = [["log", "1.814", "0.9987"], ["theoretical", "4.545", "0.9968"]] as const;
  for (const [kind, objective, r2] of expected) {
    const fit = fitLaw(pile.observations, kind);
    for (const name of PARAMETERS) assertClose(fit.law[name], pile.laws[kind][name], 2e-3, name);
    assertEquals([(fit.huberLoss * 1e5).toFixed(3), fit.r2.toFixed(4)], [objective, r2]);
    assertEquals([fit.starts, fit.startsConverged], [300, 300]);
    const printed = assess(pile.laws[kind], pile.observations);
    assertEquals([(printed.huberLoss * 1e5).toFixed(3), printed.r2.toFixed(4)], [objective, r2]);
  }
});

Deno.test("every golden question", () => {
  const { law } = FIT;
  const queries = GOLDEN.queries_logarithmic as unknown as Record<string, number>[];
  assertEquals(queries.length, 22);
  for (const { query, N, P, loss, target_N, expected } of queries) {
    const answers: Record<string, () => number | undefined> = {
      loss: () => predictLoss(law, N!, P!),
      equivalent_N: () => equivalentParameters(law, N!, P!),
      N_for_loss: () => parametersForLoss(law, loss!, P!),
      P_for_equivalent_N: () => streamsForLoss(law, N!, predictLoss(law, target_N!, 1)),
      parameter_saving: () => 1 - 1 / streamFactor(law, P!),
    };
    assertClose(answers[String(query)]!()!, expected!, 1e-6, String(query));
  }
});

Deno.test("what no number of parameters or streams reaches has no answer", () => {
  const { law } = FIT;
  assertEquals(parametersForLoss(law, law.E, 8), undefined);
  assertEquals(streamsForLoss(law, 1e9, law.E / 2), undefined);
  const { theoretical } = laws; // P streams are worth at most rho^(-1/alpha) times N
  const most = theoretical.stream ** (-1 / theoretical.alpha);
  const streamsFor = (M: number) =>
    streamsForLoss(theoretical, 1e9, predictLoss(theoretical, M, 1));
  assertEquals(streamsFor(1.01e9 * most), undefined);
  const P = streamsFor(1.5e9)!;
  assertClose(streamFactor(theoretical, P), 1.5, 1e-12);
  assertClose(streamsForLoss(law, 1e9, predictLoss(law, 1e9, 5)), 5, 1e-9);
  // The stream factor overflows here, the loss does not.
  const flat = { ...theoretical, alpha: 1e-5 };
  assert(predictLoss(flat, 1e9, 8) < flat.E + 1);
});

Deno.test("refits with one observation left out have the golden parameters and objectives", () => {
  const { rows } = GOLDEN.uncertainty_logarithmic.jackknife;
  assertEquals(rows.length, 24);
  observations.forEach((_, i) => {
    const { law, huberLoss } = refit(observations.toSpliced(i, 1), FIT.law);
    const found = [law.E, law.A / 1e9, law.alpha, law.stream, huberLoss];
    found.forEach((value, column) => assertClose(value, rows[i][column], 1e-4, `row ${i}`));
  });
});

Deno.test("bootstrap: intervals within what the golden file allows, the same for a seed", () => {
  const { p2_5, p50, p97_5 } = GOLDEN.uncertainty_logarithmic.case_bootstrap;
  const { laws: drawn, dropped } = bootstrap(observations, FIT.law, { resamples: 500, seed: 7 });
  assertEquals(drawn.length + dropped, 500);
  assert(dropped < 10);
  PARAMETERS.forEach((name, i) => {
    const width = p97_5[i] - p2_5[i];
    const { low, median, high } = intervalOf(drawn, (law) => law[name])!;
    assert(Math.abs(median - p50[i]) <= 0.1 * width, `median of ${name}`);
    if (name === "A") return;
    assert(Math.abs(low - p2_5[i]) <= 0.25 * width, `low end of ${name}`);
    assert(Math.abs(high - p97_5[i]) <= 0.25 * width, `high end of ${name}`);
  });
  const options = { resamples: 20, seed: 7 };
  assertEquals(bootstrap(observations, FIT.law, options).laws, drawn.slice(0, 20));
  assert(bootstrap(observations, FIT.law, { ...options, seed: 8 }).laws[0]!.E !== drawn[0]!.E);
});

Deno.test("bootstrap: a parameter at its bound in the fit may lie above it in a resample", () => {
  const none = { kind: "log", E: 1, A: 1e8, alpha: 0.3, stream: 0 } as const;
  // Streams that lose a little, and noise.
  const factor = (n: number, p: number) => 1 + 0.002 * Math.log(p) + 0.02 * Math.sin(2 * n + p);
  const rows = [5e4, 1e5, 2e5].flatMap((n) =>
    [1, 2, 4, 8].map((p) => ({ n, p, loss: predictLoss(none, n, p) * factor(n, p) }))
  );
  const { law } = fitLaw(rows, "log");
  assert(law.stream < 1e-6, `k = ${law.stream}`);
  const { laws, dropped } = bootstrap(rows, law, { resamples: 100, seed: 7 });
  assert(dropped <= 5, `${dropped} dropped`);
  const above = laws.filter(({ stream }) => stream > 0.01).length;
  assert(above > 10 && above < 90, `k is above its bound in ${above} of 100`);
});

Deno.test("bootstrap: rows drawn with one P or one N determine nothing and are dropped", () => {
  const rows = observations.filter(({ p }) => p === 1).slice(0, 5)
    .concat(observations.filter(({ p }) => p === 4).slice(0, 1));
  const { laws, dropped } = bootstrap(rows, FIT.law, { resamples: 300, seed: 7 });
  assert(dropped > 60, `${dropped} dropped`);
  const still = laws.filter(({ stream }) => Math.abs(stream / FIT.law.stream - 1) < 1e-12);
  assertEquals(still, []);
});

Deno.test("more than 256 different P are told apart", () => {
  const rows = Array.from({ length: 600 }, (_, i) => {
    const n = i % 2 === 0 ? 1e9 : 3e9, p = 1 + (i >> 1);
    return { n, p, loss: predictLoss(FIT.law, n, p) };
  });
  assertClose(refit(rows, FIT.law).law.stream, FIT.law.stream, 1e-6, "k");
});

Deno.test("observations of one N are refused, and of one P fit the law without streams", () => {
  const single = () => void fitLaw(observations.map((row) => ({ ...row, n: 1e9 })), "log");
  const words = "needs several N: all observations have N = 1000000000";
  assertThrows(single, DataError, words);
  assertEquals(fitLaw(observations.slice(0, 6), "chinchilla").startsConverged, 75);
});

Deno.test("observations between semicolons and tabs are those between commas", () => {
  const text = "n_params,streams,loss\n1e8,1,2.5\n2e8, 2, 2.25\n";
  const expected = [{ n: 1e8, p: 1, loss: 2.5 }, { n: 2e8, p: 2, loss: 2.25 }];
  for (const separator of [",", ";", "\t"]) {
    assertEquals(parseObservations(text.replaceAll(",", separator), "file"), expected);
  }
});
