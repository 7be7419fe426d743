/** From answers to scores: choices, stop strings, means, and the paper's tables. */
import { assert, assertEquals } from "@std/assert";
import { parseBounds } from "../../../cli/commands/eval/plan.ts";
import { shortfalls, summarizeAll } from "../../../cli/commands/eval/show.ts";
import { differenceOfMeans, pairedDifference } from "../../../core/eval/harness/paired.ts";
import { cutAtStops } from "../../../core/eval/harness/predict.ts";
import {
  choiceMetrics,
  type DocumentScore,
  summarize,
  textMetrics,
} from "../../../core/eval/harness/results.ts";
import { paperTables } from "../../../core/eval/tasks/paper_tables.ts";
import { codeMetrics, passAtK } from "../../../core/eval/tasks/code.ts";
import { choiceQuestion } from "../../../core/eval/harness/task.ts";
import { taskOf } from "../../../core/eval/tasks/mod.ts";
import { fixtureRows, readFixture } from "../../fixtures.ts";

Deno.test("accuracy, also per code point, as the harness takes it", () => {
  const cases = fixtureRows("golden/eval/cases_mc_scoring.jsonl");
  assert(cases.length > 5);
  for (const { loglikelihood, choices, gold, acc, acc_norm } of cases) {
    const sample = { task: "t", doc_id: 0, sample: 0, loglikelihood };
    assertEquals(choiceMetrics(choiceQuestion("", choices, gold), sample), { acc, acc_norm });
  }
});

Deno.test("word and byte perplexity and bits per byte are the harness's", () => {
  const task = taskOf("perplexity")!;
  const { rolling } = readFixture("golden/eval/context_reached.json");
  const close = (a: number, b: number) => assert(Math.abs(a / b - 1) < 1e-9, `${a}, not ${b}`);
  for (const { text, tokens, loglikelihood, ...expected } of rolling[0].rows) {
    const sample = { task: "t", doc_id: 0, sample: 0, loglikelihood: [loglikelihood], tokens };
    const { means } = summarize(task, [score("perplexity", 0, textMetrics(text, sample))]);
    const found = Object.fromEntries(means.map(({ metric, value }) => [metric, value]));
    for (const [metric, value] of Object.entries(expected)) close(found[metric]!, value as number);
    close(found.perplexity!, Math.exp(-loglikelihood / tokens));
  }
  // Python's split keeps the empty ends, and no-break spaces part words.
  const sample = { task: "t", doc_id: 0, sample: 0, loglikelihood: [-1], tokens: 1 };
  assertEquals(textMetrics(" a\u00a0b\u001cc\ufeff\n", sample).words, 5);
});

Deno.test("stop strings cut in the order of their list", () => {
  for (const { text, stop, result } of fixtureRows("golden/eval/cases_stop_truncation.jsonl")) {
    assertEquals(cutAtStops(text, stop), result);
  }
});

function score(task: string, doc_id: number, metrics: DocumentScore["metrics"], group = "") {
  return { task, doc_id, group, request: "", samples: "", metrics };
}

const factsOf = (name: string) =>
  ({ task: taskOf(name)!, shots: 5, prompt_format: "completion", files: [] }) as const;

Deno.test("means have sample standard errors; lists are pooled; groups by size", () => {
  const gsm8k = taskOf("gsm8k")!;
  const values = [1, 0, 0, 1, 1];
  const { means } = summarize(
    gsm8k,
    values.map((v, i) => score("gsm8k", i, { strict_match: v, flexible_extract: 1 })),
  );
  assertEquals(means.map(({ metric, value, n }) => [metric, value, n]), [
    ["strict_match", 0.6, 5],
    ["flexible_extract", 1, 5],
  ]);
  assert(Math.abs(means[0]!.stderr! - Math.sqrt(0.3 / 5)) < 1e-12);

  const ifeval = taskOf("ifeval")!;
  const row = (prompt: number, strict: number[], loose: number[]) => ({
    prompt_strict: prompt,
    instruction_strict: strict,
    prompt_loose: prompt,
    instruction_loose: loose,
  });
  const pooled = summarize(ifeval, [
    score("ifeval", 0, row(1, [1], [1])),
    score("ifeval", 1, row(0, [1, 0, 0], [1, 1, 0])),
  ]).means;
  assertEquals(Object.fromEntries(pooled.map(({ metric, value }) => [metric, value])), {
    mean: (0.5 + 0.5 + 0.5 + 0.75) / 4,
    prompt_strict: 0.5,
    instruction_strict: 0.5,
    prompt_loose: 0.5,
    instruction_loose: 0.75,
  });

  const mmlu = taskOf("mmlu")!;
  const rows = [score("mmlu", 0, { acc: 1 }, "anatomy")].concat(
    [1, 2, 3].map((id) => score("mmlu", id, { acc: 0 }, "astronomy")),
  );
  const result = summarize(mmlu, rows);
  assertEquals(result.means[0]!.value, 0.25);
  assertEquals(result.groups.map(({ group, value, n }) => [group, value, n]), [
    ["anatomy", 1, 1],
    ["astronomy", 0, 3],
  ]);
});

Deno.test("intervals are Student's, of pairs and of means with one degree of freedom", () => {
  const a = [1.2, 0.8, 1.9, 1.1, 0.4, 1.6, 0.9, 1.3, 0.7, 1.1];
  // Mean 1.1, standard deviation 0.43716, t(9) 2.26216.
  const { difference, low, high, n } = pairedDifference(a, a.map(() => 0))!;
  assertEquals([difference.toFixed(4), n], ["1.1000", 10]);
  assert(Math.abs(high - low - 2 * 2.26216 * 0.43716 / Math.sqrt(10)) < 1e-4);
  assertEquals(pairedDifference([1], [0]), undefined);

  const mean = (value: number, stderr: number | undefined) => ({ value, stderr, n: 2 });
  for (const [a, b, t] of [[0.1, 0, 12.706], [0.1, 0.3, 12.706], [0.1, 0.1, 4.303]] as const) {
    const { low, high } = differenceOfMeans(mean(1, a), mean(0, b))!;
    const times = (high - low) / 2 / Math.hypot(a, b);
    assert(Math.abs(times - t) < 1e-9, `${times}`);
  }
  // Without a spread, few rows that differ alike say nothing, and six or more that there is a difference.
  for (const [n, expected] of [[2, undefined], [5, undefined], [6, [1, 1]]] as const) {
    const [ones, zeros] = [Array(n).fill(1), Array(n).fill(0)];
    const paired = pairedDifference(ones, zeros);
    const means = differenceOfMeans({ ...mean(1, 0), n }, { ...mean(0, 0), n });
    for (const found of [paired, means]) assertEquals(found && [found.low, found.high], expected);
  }
  assertEquals(differenceOfMeans(mean(1, undefined), mean(0, 0)), undefined);
});

Deno.test("every golden pass@k", () => {
  const cases = fixtureRows("golden/eval/cases_pass_at_k.jsonl");
  assertEquals(cases.length, 12);
  for (const { n, c, k, pass_at_k, pass_at_k_mean } of cases) {
    if (pass_at_k_mean === undefined) assertEquals(passAtK(n, c, k), pass_at_k);
    else {
      const values = n.map((each: number, i: number) => passAtK(each, c[i], k));
      const mean = values.reduce((sum: number, value: number) => sum + value, 0) / values.length;
      assertEquals(mean, pass_at_k_mean);
    }
  }
});

Deno.test("pass@k: the greedy answer for k = 1, sampled ones for more", () => {
  const result = (base: "pass" | "fail", plus: "pass" | "fail" | null) => ({ base, plus });
  const pass = result("pass", "fail"), fail = result("fail", "fail");
  const temperatures = [0, ...new Array(10).fill(0.8)];
  const responses = temperatures.map((temperature) => ({ text: "", temperature }));
  const metrics = codeMetrics(responses, [fail, pass, ...new Array(9).fill(fail)]);
  const base = { "pass@1": 0, "pass@10": 1 }, plus = { "plus_pass@1": 0, "plus_pass@10": 0 };
  assertEquals(metrics, { unavailable: 0, ...base, ...plus });
  // Without a greedy answer pass@1 is estimated from all.
  const sampled = codeMetrics(responses.slice(1), [pass, ...new Array(9).fill(fail)]);
  assert(Math.abs((sampled["pass@1"] as number) - 0.1) < 1e-12);
});

Deno.test("the mean of the general tasks is that of the paper's six columns", () => {
  // Scores of P = 1 after 1T tokens, in percent, with the mean the paper prints.
  const printed = "mmlu.acc 28.5 winogrande.acc 61.9 hellaswag.acc_norm 65.0 " +
    "openbookqa.acc_norm 40.6 piqa.acc_norm 75.2 arc_easy.acc_norm 64.8 " +
    "arc_challenge.acc_norm 64.8 sciq.acc_norm 90";
  const split = [...printed.matchAll(/(\w+)\.(\w+) (\S+)/g)].map(([, ...words]) =>
    words as [task: string, metric: string, percent: string]
  );
  const facts = split.map(([task]) => factsOf(task));
  const scores = split.map(([task, metric, percent]) =>
    score(task, 0, { [metric]: Number(percent) / 100 })
  );
  const results = summarizeAll(facts, scores);
  const [general] = paperTables(results, "paper-1t");
  const columns = "MMLU WinoGrande HellaSwag OpenBookQA PIQA ARC Average";
  assertEquals(Object.keys(general!.columns).join(" "), columns);
  assertEquals(general!.columns.Average!.toFixed(1), "56.0");
  const [smaller] = paperTables(results, "paper-42b");
  const fewer = "WinoGrande HellaSwag OpenBookQA PIQA ARC SciQ Average";
  assertEquals(Object.keys(smaller!.columns).join(" "), fewer);
  assertEquals(smaller!.columns.Average!.toFixed(2), "66.25");
});

Deno.test("tables of the paper: percent, ARC from both sets, null where a task is missing", () => {
  const facts = ["winogrande", "arc_easy", "arc_challenge"].map(factsOf);
  const results = summarizeAll(facts, [
    score("winogrande", 0, { acc: 1 }),
    score("arc_easy", 0, { acc: 0, acc_norm: 1 }),
    score("arc_challenge", 0, { acc: 1, acc_norm: 0 }),
  ]);
  const [general, code] = paperTables(results, "paper-42b");
  assertEquals(general!.columns.WinoGrande, 100);
  assertEquals(general!.columns.ARC, 50);
  assertEquals([general!.columns.SciQ, general!.columns.Average], [null, null]);
  assertEquals(code!.columns["HumanEval @1"], null);
  const bounds = parseBounds(["arc_easy=0.9", "arc_easy.acc=0.1"], [taskOf("arc_easy")!]);
  assertEquals(shortfalls(bounds, results), ["arc_easy: acc is 0.0000, below the required 0.1"]);
});
