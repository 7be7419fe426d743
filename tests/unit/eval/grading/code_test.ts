/** Python problems: reading, asking, cutting, sanitising and grading, against the goldens. */
import { assert, assertEquals, assertRejects, assertThrows } from "@std/assert";
import { DataError } from "../../../../core/base/errors.ts";
import { allclose } from "../../../../core/eval/grading/code/allclose.ts";
import { arrayTexts, objectTexts } from "../../../../core/eval/grading/code/json_text.ts";
import { compareWith } from "../../../../core/eval/grading/code/comparison.ts";
import type { Benchmark, CodeProblem } from "../../../../core/eval/grading/code/problems.ts";
import { withScratch } from "../../../scratch.ts";
import { readProblems } from "../../../code_problems.ts";
import { CODE_TOKENS, codePrompt, codeStops, truncate } from "../../../../core/eval/tasks/code.ts";
import { FILES, find, golden, PLAIN } from "./code_goldens.ts";
import { equal, parseValue } from "../../../../core/eval/grading/code/values.ts";

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

Deno.test("equality is Python's", () => {
  const same = (a: string, b: string) => equal(parseValue(a), parseValue(b));
  const equals = [
    ["1", "1.0"],
    ["1", "true"],
    ["0.0", "-0.0"],
    ['{"x":"20000000000000"}', "9007199254740992.0"],
    ['{"c":[1.0,0.0]}', "1"],
    ['{"s":[1,2.0]}', '{"z":[1.0,2]}'],
    ['{"d":[["a",1],["b",[2]]]}', '{"d":[["b",[2.0]],["a",true]]}'],
    ['{"k":["collections.Counter",{"d":[["a",1]]}]}', '{"d":[["a",1]]}'],
  ];
  for (const [a, b] of equals) assert(same(a!, b!), `${a} == ${b}`);
  const others = [
    ["1", '"1"'],
    ["[1]", '{"t":[1]}'],
    ['{"x":"20000000000001"}', "9007199254740992.0"],
    ['{"f":"nan"}', '{"f":"nan"}'],
    ['{"o":"m.C"}', '{"o":"m.C"}'],
    ['["a,b"]', '["a","b"]'],
    ["null", "false"],
  ];
  for (const [a, b] of others) assert(!same(a!, b!), `${a} != ${b}`);
});

Deno.test("values that the encoder does not write are refused before they are read", () => {
  for (const text of ["9".repeat(8_000_000), `[${"9".repeat(30)}]`]) {
    assertThrows(() => parseValue(text), RangeError, "an integer of too many digits");
  }
  assertThrows(() => parseValue("[".repeat(1_000_000)), RangeError, "nested too deeply");
  const digits = parseValue(`{"x":"${"f".repeat(1 << 20)}"}`);
  assert(equal(digits, digits));
  assertEquals(parseValue(`${"[".repeat(400)}${"]".repeat(400)}`).kind, "list");
});

Deno.test("closeness is numpy's", () => {
  const close = (a: string, b: string, atol = 1e-6) => allclose(parseValue(a), parseValue(b), atol);
  assert(close("1.0000005", "1.0") && !close("1.00001", "1.0"));
  assert(close("1e9", "1000000050.0") && !close("1e9", "1000000200.0"));
  assert(close("[[1.0],[2.0]]", "[[1.0,1.0],[2.0,2.0]]"), "shapes broadcast");
  assert(close('{"f":"inf"}', '{"f":"inf"}') && !close('{"f":"nan"}', '{"f":"nan"}'));
  assert(close('{"c":[1.0,1.0]}', '{"c":[1.0,1.0000001]}'));
  assert(!close("[1.0,[2.0]]", "[1.0,[2.0]]"), "no array of one shape");
  assert(!close('["a"]', '["a"]') && !close('{"s":[1.0]}', '{"s":[1.0]}'), "no numbers");
});

Deno.test("the tolerance of floats stays for later inputs", () => {
  const expected = ["1", "0.5", "[1, 2]", "1"];
  const isRight = compareWith({ entryPoint: "f", atol: 0, inputs: expected, expected });
  assert(!isRight(0, "1.0000001") && isRight(1, "0.5000001"));
  assert(!isRight(3, "1.0000001"), "types must be the same");
  assert(isRight(2, "[1.0000001, 2]"), "types inside need not be");
});

Deno.test("sequences of other lengths are not close, though NumPy would repeat one of them", () => {
  for (const [result, wanted] of [["[1.5]", "[1.5, 1.5]"], ["[]", "[1.5]"], ["1.5", "[1.5]"]]) {
    const expected = [wanted!];
    const isRight = compareWith({ entryPoint: "f", atol: 0, inputs: ["[1]"], expected });
    assert(!isRight(0, result!), `${result} for ${wanted}`);
  }
});

Deno.test("special rules accept what EvalPlus accepts", () => {
  const right = (entryPoint: string, input: string, expected: string, result: string, atol = 0) =>
    compareWith({ entryPoint, atol, inputs: [input], expected: [expected] })(0, result);
  assert(right("find_zero", "[[1, 2]]", "-0.5", "-0.50004", 1e-4));
  assert(!right("find_zero", "[[1, 2]]", "-0.5", "-0.6", 1e-4));
  assert(right("are_equivalent", "[]", "true", "false"));
  assert(right("sum_div", "[1]", "1", "0") && !right("sum_div", "[1]", "1", "2"));
  assert(right("surface_Area", "[3,4]", "33", "35") && !right("surface_Area", "[3,4]", "33", "34"));
  assert(right("digit_distance_nums", "[1, 256]", "1", "12"));
  assert(right("Diff", "[]", "[1,2]", '{"t":[2,1,1]}') && !right("Diff", "[]", "[1]", "[[1]]"));
  assert(right("check_str", "[]", '"x"', "true") && right("check_str", "[]", "null", "null"));
  assert(!right("check_str", "[]", '"x"', "false") && right("check_str", "[]", '"x"', "5"));
});
