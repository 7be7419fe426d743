/** Code tasks of `parscale eval`: nothing runs unasked, solutions pass, pass@k, other layouts. */
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { DATA, runEval, sortedLines } from "../cli/eval_testing.ts";
import { jsonLines, MODEL, PLAIN_MODEL, rowsOf, succeed } from "../cli/models.ts";
import { runParscale } from "../cli/run.ts";
import { withScratch } from "../scratch.ts";

const ADD = "def add(x: int, y: int):\n    return x + y\n";
const SCORE = ["eval", "--tasks", "humaneval", "--data", DATA, "--ids", "53", "--score", "-"];
const ALLOWED = [...SCORE, "--allow-code-execution", "--json"];

async function metricsOf(
  rows: readonly unknown[],
  args: readonly string[] = ALLOWED,
): Promise<Record<string, number>> {
  const stdout = await succeed([...args, "-q"], { stdin: jsonLines(...rows) });
  const [task] = JSON.parse(stdout).results.tasks;
  assert(["pyodide", "bwrap"].includes(task.sandbox), task.sandbox);
  assertMatch(task.python, /^3\.11\.\d+$/);
  return Object.fromEntries(
    task.metrics.map((m: { metric: string; value: number }) => [m.metric, m.value]),
  );
}

Deno.test("EvalPlus' layouts: whole solutions, completions, several answers to a row", async () => {
  const one = (solution: string) => ({ task_id: "HumanEval/53", solution });
  assertEquals(await metricsOf([one(ADD)]), { "pass@1": 1, "plus_pass@1": 1 });
  const wrong = ADD.replace("+", "-");
  const completion = { task_id: "HumanEval/53", completion: "    return x + y\n\ndef f():\n  x(" };
  assertEquals((await metricsOf([completion]))["pass@1"], 1);
  const ten = Array.from({ length: 10 }, (_, i) => one(i < 3 ? ADD : wrong));
  const metrics = await metricsOf(ten);
  for (const name of ["pass@1", "plus_pass@1"]) {
    assert(Math.abs(metrics[name]! - 0.3) < 1e-12, name);
  }
  assertEquals(metrics["pass@10"], 1);
});

Deno.test("compare runs the programs of every method where that is allowed", () =>
  withScratch(async (cwd) => {
    const line = `compare --model ${PLAIN_MODEL} --parscale ${MODEL} --beams 2 --tasks humaneval ` +
      `--data ${DATA} --limit 2 --max-tokens 8 --latency-rows 1 --allow-code-execution --out table -q`;
    const rows = await rowsOf(line, { cwd });
    assertEquals(rows.map(({ label, metric, rows, value }) => [label, metric, rows, value]), [
      ["P=1", "pass@1", 2, 0],
      ["2 beams", "pass@1", 2, 0],
      ["P=2", "pass@1", 2, 0],
    ]);
    for (const { latency_s } of rows) assert(latency_s > 0);
    // A program that is right in one evaluation is the whole difference.
    const own = ["--tasks", "humaneval", "--data", DATA, "--ids", "0,53", "--allow-code-execution"];
    for (const [name, solution] of [["wrong", ADD.replace("+", "-")], ["right", ADD]] as const) {
      const none = { task_id: "HumanEval/0", solution: "" };
      const stdin = jsonLines(none, { task_id: "HumanEval/53", solution });
      await succeed(["eval", ...own, "--score", "-", "--out", name, "-q"], { cwd, stdin });
    }
    const [, right] = await rowsOf("compare wrong right", { cwd });
    assertEquals([right.value, right.difference], [0.5, 0.5]);
  }));

Deno.test("a line says in which sandbox programs run", async () => {
  const stdin = jsonLines({ task_id: "HumanEval/53", solution: ADD });
  const { code, stderr } = await runParscale([...ALLOWED, "--sandbox", "pyodide"], { stdin });
  assertEquals(code, 0, stderr);
  assertMatch(stderr, /^running programs in the pyodide sandbox, Python 3\.11\.\d+$/m);
});

Deno.test("answers of a chat model are whole programs, and may hold other markdown", async () => {
  const sample = { task: "humaneval", doc_id: 53, text: `${ADD}\`\`\`\nIt adds. \`x(\`` };
  await withScratch(async (cwd) => {
    const out = `${cwd}/out`, log = ["--log-format", "harness", "--out", out];
    assertEquals((await metricsOf([sample], [...ALLOWED, "--chat", ...log]))["pass@1"], 1);
    const { tasks } = JSON.parse(await Deno.readTextFile(`${out}/results.json`)).results;
    assertEquals(tasks[0].prompt_format, "chat");
    const logged = [...Deno.readDirSync(out)].find(({ name }) => name.startsWith("samples_"))!;
    const row = JSON.parse(await Deno.readTextFile(`${out}/${logged.name}`));
    const { arg_0, arg_1: { until } } = row.arguments.gen_args_0;
    assert(JSON.parse(arg_0).at(-1).content.endsWith(":\n```python\n"));
    assert(until.includes("\n```\n"));
  });
});

Deno.test("a greedy answer and sampled ones: pass@1 is the greedy one's", () =>
  withScratch(async (cwd) => {
    const args = ["--tasks", "humaneval", "--ids", "0,53", "--max-tokens", "8"];
    await runEval([...args, "--n-samples", "10", "--predict-only", "--out", "run"], cwd);
    const samples = sortedLines(`${cwd}/run/samples.jsonl`);
    assertEquals(samples.length, 22);
    assertEquals(samples.slice(0, 11).map(({ temperature }) => temperature), [
      0,
      ...new Array(10).fill(0.8),
    ]);
    // As if the model had known the answer when it was greedy.
    const rows = samples.map((s) =>
      s.doc_id === 53 && s.sample === 0 ? { ...s, text: "    return x + y\nprint(1)" } : s
    );
    const args2 = ALLOWED.with(ALLOWED.indexOf("53"), "0,53");
    const metrics = await metricsOf(rows, args2);
    assertEquals([metrics["pass@1"], metrics["pass@10"]], [0.5, 0]);
  }));

Deno.test("plain HumanEval gives base scores only", () =>
  withScratch(async (cwd) => {
    await Deno.mkdir(`${cwd}/data/humaneval`, { recursive: true });
    const file = "humaneval/HumanEval.jsonl.gz";
    await Deno.copyFile(`${DATA}/${file}`, `${cwd}/data/${file}`);
    const args = ALLOWED.with(ALLOWED.indexOf(DATA), `${cwd}/data`);
    const rows = [{ task_id: "HumanEval/53", solution: ADD }];
    assertEquals(await metricsOf(rows, args), { "pass@1": 1 });
  }));

Deno.test("a program that needs a missing module counts as wrong, and that is said", async () => {
  const solution = "import numpy\n" + ADD.replace("x + y", "int(numpy.add(x, y))");
  const stdin = jsonLines({ task_id: "HumanEval/53", solution });
  const { code, stdout, stderr } = await runParscale(ALLOWED, { stdin });
  assertEquals(code, 0);
  assertStringIncludes(stderr, "need modules that the sandbox lacks and count as wrong");
  assertEquals(JSON.parse(stdout).results.tasks[0].metrics[0].value, 0);
});
