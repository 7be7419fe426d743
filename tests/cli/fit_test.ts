/** `parscale fit` as a black box: inputs, laws, answers and figures. */
import { openCheckpoint } from "../../core/checkpoint/open.ts";
import { countParameters } from "../../core/model/parameters.ts";
import { assert, assertAlmostEquals, assertEquals, assertStringIncludes } from "@std/assert";
import {
  assertFailed,
  jsonLines,
  linkRun,
  MODEL,
  names,
  PLAIN_MODEL,
  rowsOf,
  succeed,
} from "./models.ts";
import { assertFigure } from "./figures.ts";
import { runParscale } from "./run.ts";
import { withScratch } from "../scratch.ts";
import { readFixture } from "../fixtures.ts";

const GOLDEN = readFixture("analysis/scaling-law.json").datasets["stack-v2-python"];
const BUILT_IN = "fit --data-set stack-v2-python";
type Row = { n_params: number; streams: number; loss: number };
const ROWS: Row[] = GOLDEN.observations.map(
  ({ N, P, loss }: Record<string, number>) => ({ n_params: N, streams: P, loss }),
);
const CSV = toCsv(ROWS);
const JSONL = jsonLines(...ROWS);
/** Observations of two numbers of streams alone. */
const TWO = toCsv(ROWS.filter(({ streams }) => streams < 4));

function toCsv(rows: readonly Row[]): string {
  const lines = rows.map(({ n_params, streams, loss }) => `${n_params},${streams},${loss}\n`);
  return `n_params,streams,loss\n${lines.join("")}`;
}

Deno.test("the golden law of the paper's observations", async () => {
  const [result] = await rowsOf(BUILT_IN);
  const { optimum, optimum_predictions } = GOLDEN.logarithmic;
  for (const name of ["E", "A", "k", "alpha"]) {
    assertAlmostEquals(result.parameters[name] / optimum[name], 1, 1e-5);
  }
  assertAlmostEquals(result.huber_loss / optimum.huber_loss, 1, 1e-8);
  assertAlmostEquals(result.r2, optimum.r2, 1e-7);
  assertEquals([result.starts, result.starts_converged, result.converged], [300, 300, true]);
  result.rows.forEach((row: Row & { predicted: number; error: number }, i: number) => {
    assertAlmostEquals(row.predicted, optimum_predictions[i], 1e-6);
    assertAlmostEquals(row.error, row.predicted - row.loss, 1e-12);
    assertEquals([row.n_params, row.streams, row.loss], Object.values(ROWS[i]!));
  });
});

Deno.test("observations come from CSV, JSON, JSON lines, stdin and two files", () =>
  withScratch(async (cwd) => {
    const files = {
      "l.csv": CSV,
      "l.jsonl": JSONL,
      "l.json": JSON.stringify(ROWS),
      "a.csv": toCsv(ROWS.slice(0, 9)).replace(/\n/g, "\r\n"),
      "q.csv": CSV.replaceAll(/[^,\n]+/g, '"$&"'),
      "b.json": JSON.stringify({ observations: ROWS.slice(9) }),
    };
    for (const [name, text] of Object.entries(files)) {
      Deno.writeTextFileSync(`${cwd}/${name}`, text);
    }
    const paper = "fit --preset paper", [expected] = await rowsOf(paper);
    const tested = async (given: string, stdin = "") =>
      (await rowsOf(`${paper} ${given}`, { cwd, stdin }))[0];
    for (const given of ["l.csv", "l.jsonl", "l.json", "q.csv", "a.csv b.json"]) {
      assertEquals(await tested(given), { ...expected, observations: given.replace(" ", ", ") });
    }
    for (const stdin of [CSV, JSONL]) {
      assertEquals(await tested("-", stdin), { ...expected, observations: "stdin" });
    }
  }));

Deno.test("runs of train are observations", () =>
  withScratch(async (cwd) => {
    for (const [name, model, last] of [["p1", PLAIN_MODEL, 1.5], ["p2", MODEL, null]] as const) {
      linkRun(model, `${cwd}/${name}`);
      const metrics = [{ eval_loss: last, loss_ema: 3 }, { eval_loss: null, loss_ema: 2.5 }];
      await Deno.writeTextFile(`${cwd}/${name}/metrics.jsonl`, jsonLines(...metrics));
    }
    await Deno.writeTextFile(`${cwd}/l.csv`, CSV);
    const { code, stdout, stderr } = await runParscale("fit l.csv p1 p2 --jsonl", { cwd });
    assertEquals(code, 0, stderr);
    assertStringIncludes(stderr, "some runs have an eval_loss and others only");
    const [p1, p2] = JSON.parse(stdout).rows.slice(-2);
    assertEquals([p1.streams, p1.loss, p2.streams, p2.loss], [1, 1.5, 2, 2.5]);
    const counts = await Promise.all([PLAIN_MODEL, MODEL].map(async (model) => {
      const { total, embedding } = countParameters((await openCheckpoint(model)).config);
      return total - embedding;
    }));
    assertEquals([p1.n_params, p2.n_params], counts);
    const few = "has 4 parameters and needs more observations than that: there are 2";
    assertFailed(await runParscale("fit p1 p2", { cwd }), 3, few);
  }));

Deno.test("all questions, with intervals that hold the answers", async () => {
  const asked = "--predict 1571472384,2 --predict 7B,8 --equivalent 3B,3 --params-for 1.05,8 " +
    "--streams-for 1.05,1571472384 --saving 8 --bootstrap 60 --seed 3";
  const { code, stdout, stderr } = await runParscale(`${BUILT_IN} ${asked} --json`);
  assertEquals(code, 0, stderr);
  assertStringIncludes(stderr, "warning: the data hardly determine");
  const { schema, seed, results } = JSON.parse(stdout);
  assertEquals([schema, seed], ["parscale.fit/2", 3]);
  const expected = [1.0665093513, 0.9555669303, 4296769336.6, 1395027441.6];
  const values = results.queries.map(({ value }: { value: number }) => value);
  expected.forEach((value, i) => assertAlmostEquals(values[i] / value, 1, 1e-6));
  assertAlmostEquals(values[5], 0.4499965333, 1e-6);
  for (const { value, interval } of results.queries) {
    assert(interval.low < value && value < interval.high);
  }
  assertEquals(Object.keys(results.intervals), ["E", "A", "k", "alpha"]);
  assertEquals(results.bootstrap, { refits: 60, dropped: 0 });
  const table = await succeed(`${BUILT_IN} --predict 7B,8 --streams-for 0.7,1M`);
  for (const text of ["0.9556", "estimate", "300 of 300 starts", "1.1728", "out of reach"]) {
    assertStringIncludes(table, text);
  }
  assertStringIncludes(table, "--bootstrap 500 gives intervals");
});

Deno.test("laws side by side, the better one by its objective", async () => {
  const [both] = await rowsOf(`${BUILT_IN} --law both`);
  const [log, theoretical] = both.comparison;
  assertEquals([both.law, log.law, theoretical.law], ["log", "log", "theoretical"]);
  assert(log.huber_loss < theoretical.huber_loss && log.r2 > theoretical.r2);
  assert(theoretical.parameters.rho > 0.8);
  assertStringIncludes(await succeed(`${BUILT_IN} --law both`), "smaller objective");
});

Deno.test("the paper's parameters, of both corpora", async () => {
  const [stack] = await rowsOf("fit --preset paper --saving 8");
  const { parameters_from, starts, parameters } = stack;
  assertEquals([parameters_from, starts, parameters.k], ["paper", null, 0.393463]);
  assertEquals(
    stack.rows.map(({ predicted }: { predicted: number }) => Number(predicted.toFixed(4))),
    GOLDEN.logarithmic.paper_predictions,
  );
  assertEquals((100 * stack.queries[0].value).toFixed(1), "45.0");
  const [pile] = await rowsOf("fit --preset paper --data-set pile --law=both");
  assertEquals([pile.parameters.k, pile.rows.length], [0.334456, 24]);
  assertEquals((1e5 * pile.huber_loss).toFixed(3), "1.814");
});

Deno.test("rows in CSV, and a warning that answers are not among them", async () => {
  for (const format of ["--format csv", "--json"]) {
    const { stderr } = await runParscale(`fit --preset paper --saving 8 ${format}`);
    assertEquals(stderr.includes("without the answers of the law"), format !== "--json");
  }
  const [head, first] = (await succeed("fit --preset paper --format csv")).split("\n");
  assertEquals(head, "streams,n_params,predicted,loss,error");
  assert(first!.startsWith("1,535813376,1.172"));
});

Deno.test("noise has no optimum: exit 1; few P and bounds are warned about", async () => {
  const make = (loss: (n: number, P: number) => number) =>
    toCsv(
      [1, 2, 4].flatMap((streams) =>
        [1, 2, 4, 8].map((n) => ({ n_params: n * 1e8, streams, loss: loss(n, streams) }))
      ),
    );
  const noise = make((n, P) => 1 + (n * 7 + P * 3) % 5 / 5);
  const fit = (stdin: string, flags = "") => runParscale(`fit - --json ${flags}`, { stdin });
  const failed = await fit(noise, "--law theoretical");
  assertEquals(failed.code, 1, failed.stderr);
  assertStringIncludes(failed.stderr, "warning: no start reached an optimum");
  assertStringIncludes((await fit(make((n) => 1 + n / 10))).stderr, "alpha is at its bound");
  assertStringIncludes((await fit(TWO)).stderr, "2 values of P cannot tell laws apart");
  const equal = await fit(make(() => 2));
  assertEquals([equal.code, JSON.parse(equal.stdout).results.r2], [0, null], equal.stderr);
});

Deno.test("the figure is a whole SVG file, and never overwrites unasked", () =>
  withScratch(async (cwd) => {
    const draw = `${BUILT_IN} --curves c.svg`;
    const { code, stderr } = await runParscale(draw, { cwd });
    assertEquals([code, stderr], [0, "wrote c.svg\n"]);
    const curves = Deno.readTextFileSync(`${cwd}/c.svg`);
    const axes = ["parameters N (without embeddings)", "loss (nats per token)"];
    assertFigure(curves, "stack-v2-python, log law", axes);
    const count = (svg: string, pattern: RegExp) => (svg.match(pattern) ?? []).length;
    assertEquals([count(curves, /aria-roledescription="line mark"/g)], [4]);
    assertEquals(count(curves, /aria-roledescription="(point|circle|square)"/g) > 0, true);
    for (const text of ["P=1", "P=8"]) assertStringIncludes(curves, `>${text}<`);
    assertStringIncludes(curves, "R² = 0.9978");
    assertFailed(await runParscale(draw, { cwd }), 2, "hint: pass --overwrite");
    assertEquals((await runParscale(`${draw} --overwrite -q`, { cwd })).stderr, "");
    assertEquals(names(cwd), ["c.svg"]);
  }));
