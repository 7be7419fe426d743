/** Python problems: reading, asking, cutting, sanitising and grading, against the goldens. */
import { assert, assertEquals, assertRejects } from "@std/assert";
import { DataError } from "../../../../core/base/errors.ts";
import { arrayTexts, objectTexts } from "../../../../core/eval/grading/code/json_text.ts";
import type { Benchmark, CodeProblem } from "../../../../core/eval/grading/code/problems.ts";
import { withScratch } from "../../../scratch.ts";
import { readProblems } from "../../../code_problems.ts";
import { CODE_TOKENS, codePrompt, codeStops, truncate } from "../../../../core/eval/tasks/code.ts";
import { FILES, find, golden, PLAIN } from "./code_goldens.ts";

Deno.test("the published files are read whole", async () => {
  const [plus, mbpp, plain] = await Promise.all([
    readProblems(FILES.humaneval, "humaneval"),
    readProblems(FILES.mbpp, "mbpp"),
    readProblems(PLAIN, "humaneval"),
  ]);
  assertEquals([plus.length, mbpp.length, plain.length], [164, 378, 164]);
  const count = (problems: CodeProblem[], which: "base" | "plus") =>
    problems.reduce(
      (sum, { tests }) => sum + (tests.kind === "inputs" ? tests[which].length : 0),
      0,
    );
  assertEquals([count(plus, "base"), count(plus, "plus")], [1570, 122683]);
  assertEquals([count(mbpp, "base"), count(mbpp, "plus")], [1174, 39841]);
  assert(plain.every(({ tests }) => tests.kind === "check" && tests.test.includes("def check(")));
});

Deno.test("requests are those of EvalPlus", () => {
  for (const row of golden("requests")) {
    assertEquals(codePrompt(find(row.dataset, row.task_id)), row.prompt);
    assertEquals(codeStops(row.dataset), row.stop);
    assertEquals(CODE_TOKENS, row.max_new_tokens);
  }
});

Deno.test("answers are cut as EvalPlus cuts them", () => {
  for (const { dataset, output, truncated } of golden("truncate")) {
    assertEquals(truncate(output, codeStops(dataset)), truncated);
  }
  assertEquals(truncate("𝄞".repeat(10001), []), "𝄞".repeat(10000));
});

Deno.test("unfit problem files say what is wrong", () =>
  withScratch(async (folder) => {
    const path = `${folder}/problems.jsonl`;
    const { base_input, ...bare } = {
      task_id: "HumanEval/0",
      prompt: "",
      entry_point: "f",
      canonical_solution: "",
      base_input: [[1]],
      plus_input: [],
      atol: 0,
    };
    const row = { ...bare, base_input }, json = JSON.stringify(row);
    const cases: [string, string, Benchmark?][] = [
      ["", `"${path}" has no problems`],
      ["text", `line 1 of "${path}" is not a JSON object`],
      [`${json}\n${json}`, `line 2 of "${path}" repeats task "HumanEval/0"`],
      [json, 'has task "HumanEval/0", expected "Mbpp/', "mbpp"],
      ['{"task_id": 1}', 'has no text in column "task_id": its columns are "task_id"'],
      [JSON.stringify({ ...row, plus_input: 1 }), 'no list of argument lists in "plus_input"'],
      [JSON.stringify({ ...row, base_input: [1] }), 'no list of argument lists in "base_input"'],
      [JSON.stringify({ ...row, atol: null }), 'no number in "atol"'],
      [JSON.stringify(bare), 'has no text in column "test"'],
    ];
    for (const [text, words, benchmark = "humaneval"] of cases) {
      await Deno.writeTextFile(path, text);
      await assertRejects(() => readProblems(path, benchmark), DataError, words);
    }
  }));

Deno.test("JSON is taken apart without reading its numbers", () => {
  assertEquals(arrayTexts('[1.0, [2, "],["], {"a": [1]}, Infinity, 123456789012345678901]'), [
    "1.0",
    '[2, "],["]',
    '{"a": [1]}',
    "Infinity",
    "123456789012345678901",
  ]);
  assertEquals([arrayTexts("[]"), arrayTexts("{}"), arrayTexts("[1")], [[], undefined, undefined]);
  const row = objectTexts('{"a\\"": [1.0, NaN] , "b": {"c": "}"}}')!;
  assertEquals([...row], [['a"', "[1.0, NaN]"], ["b", '{"c": "}"}']]);
});
