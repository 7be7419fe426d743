/** Comparison of results with expected values: `compare.py`, as the sandbox runs it. */
import { fileURLToPath } from "node:url";
import { assertEquals } from "@std/assert";
import { patiently } from "../../../../core/eval/grading/code/reference.ts";
import { runAll } from "../../../../core/eval/sandbox/job.ts";
import { Pool } from "../../../../core/eval/sandbox/pool.ts";
import { COMPARE } from "../../../../core/eval/sandbox/runner_text.ts";

/** Answers to many questions in one job. */
const HELPERS = `
def equal(a, b):
    return _is_right("f", 0, [], b, a)

def close(a, b, atol=1e-6):
    return _allclose(decode(a), decode(b), atol)

def right(entry, arguments, expected, result, atol=0, earlier=()):
    global _had_floats
    _had_floats = False
    try:
        compare(entry, atol, [*earlier, expected], arguments, result)
    except Exception:
        return False
    return True

def replayed(a, b):
    return decode(a) == decode(b)
`;

type Question = [name: "equal" | "close" | "right" | "replayed", ...values: unknown[]];

let pool: Pool;

Deno.test.beforeAll(() => {
  const folder = fileURLToPath(new URL(".", import.meta.resolve("pyodide")));
  pool = new Pool(1, { folder, residentBytes: 900e6 }, "none");
});

Deno.test.afterAll(async () => await pool[Symbol.asyncDispose]());

/** Asks all questions in one job. */
async function answers(questions: readonly Question[]): Promise<boolean[]> {
  const source = `${COMPARE}\n${HELPERS}\ndef ask(name, *values): return globals()[name](*values)`;
  const inputs = questions.map((question) => JSON.stringify(question));
  const { ending, texts, detail } = await runAll(pool, patiently(source, "ask", inputs, ""));
  assertEquals(ending, "done", detail ?? texts.at(-1));
  return texts.map((text) => JSON.parse(text.slice(1)));
}

async function assertAnswers(expected: boolean, questions: readonly Question[]): Promise<void> {
  const given = await answers(questions);
  assertEquals(questions.filter((_, index) => given[index] !== expected), []);
}

Deno.test("equality is Python's", async () => {
  await assertAnswers(true, [
    ["equal", "1", "1.0"],
    ["equal", "1", "true"],
    ["equal", "0.0", "-0.0"],
    ["equal", '{"x":"20000000000000"}', "9007199254740992.0"],
    ["equal", '{"c":[1.0,0.0]}', "1"],
    ["equal", '{"s":[1,2.0]}', '{"z":[1.0,2]}'],
    ["equal", '{"d":[["a",1],["b",[2]]]}', '{"d":[["b",[2.0]],["a",true]]}'],
    ["equal", '{"k":["collections.Counter",{"d":[["a",1]]}]}', '{"d":[["a",1]]}'],
    ["equal", '{"n":["builtins.map",[1]]}', '{"n":["builtins.map",[1.0]]}'],
    ["equal", '{"h":["list","00ff"]}', '{"h":["tuple","00ff"]}'],
  ]);
  await assertAnswers(false, [
    ["equal", "1", '"1"'],
    ["equal", "[1]", '{"t":[1]}'],
    ["equal", '{"x":"20000000000001"}', "9007199254740992.0"],
    ["equal", '{"f":"nan"}', '{"f":"nan"}'],
    ["equal", '[{"f":"nan"}]', '[{"f":"nan"}]'],
    ["equal", '{"o":"m.C"}', '{"o":"m.C"}'],
    ["equal", '["a,b"]', '["a","b"]'],
    ["equal", "null", "false"],
    ["equal", '{"n":["builtins.map",[1]]}', '{"n":["builtins.filter",[1]]}'],
    ["equal", '{"n":["builtins.map",[1]]}', "[1]"],
    ["equal", '{"h":["list","00ff"]}', '{"h":["list","00fe"]}'],
    // A check sees a value that equals nothing.
    ["replayed", '{"n":["builtins.map",[1]]}', '{"n":["builtins.map",[1]]}'],
    ["replayed", '{"h":["list","00ff"]}', '{"h":["list","00ff"]}'],
  ]);
});

Deno.test("values that the encoder does not write are wrong", async () => {
  const brackets = (count: number) => "[".repeat(count) + "]".repeat(count);
  await assertAnswers(false, [
    ["right", "f", "[]", "1", "9".repeat(8_000_000)],
    ["right", "f", "[]", "1", `[${"9".repeat(5_000)}]`],
    ["right", "f", "[]", "1", brackets(500)],
    ["right", "f", "[]", "1", '{"t":['.repeat(250) + "]}".repeat(250)],
    ["right", "f", "[]", "1", '{"s":['.repeat(250) + "]}".repeat(250)],
    ["right", "f", "[]", "1", `{"x":"${"f".repeat(1 << 20)}"}`],
    ["right", "f", "[]", "0.5", `{"x":"${"f".repeat(1 << 20)}"}`],
    ["right", "find_zero", "[[1, 2]]", "-0.5", `{"x":"${"f".repeat(1 << 20)}"}`, 1e-4],
    ...["", "text", "{}", '{"t":1}', '{"s":[[1]]}', '{"q":1}', '{"n":1}', '{"x":"g"}', "[1] [1]"]
      .map((text): Question => ["right", "are_equivalent", "[]", "true", text]),
  ]);
  const digits = `{"x":"${"f".repeat(1 << 20)}"}`;
  await assertAnswers(true, [["equal", digits, digits], ["equal", brackets(400), brackets(400)]]);
});

Deno.test("closeness is numpy's", async () => {
  await assertAnswers(true, [
    ["close", "1.0000005", "1.0"],
    ["close", "1e9", "1000000050.0"],
    ["close", "[[1.0],[2.0]]", "[[1.0,1.0],[2.0,2.0]]"],
    ["close", "[1.0,2.0]", "[[1.0,2.0],[1.0,2.0]]"],
    ["close", '{"f":"inf"}', '{"f":"inf"}'],
    ["close", '{"c":[1.0,1.0]}', '{"c":[1.0,1.0000001]}'],
    ["close", '{"c":[1e308,1e308]}', '{"c":[1e308,1e308]}'],
    ["close", "[[],[]]", "[[1.0],[2.0]]"],
    ["close", "[true,1]", '{"t":[1.0,1.0]}'],
  ]);
  await assertAnswers(false, [
    ["close", "1.00001", "1.0"],
    ["close", "1e9", "1000000200.0"],
    ["close", '{"f":"nan"}', '{"f":"nan"}'],
    ["close", '{"f":"inf"}', "1.0"],
    // No array of one shape.
    ["close", "[1.0,[2.0]]", "[1.0,[2.0]]"],
    // No numbers.
    ["close", '["a"]', '["a"]'],
    ["close", '{"s":[1.0]}', '{"s":[1.0]}'],
    ["close", "null", "null"],
    ["close", '{"x":"10000000000000000"}', '{"x":"10000000000000000"}'],
  ]);
});

Deno.test("the tolerance of floats stays for later inputs", async () => {
  await assertAnswers(true, [
    ["right", "f", "[]", "0.5", "0.5000001"],
    ["right", "f", "[]", "[1, 2]", "[1.0000001, 2]", 0, ["1", "0.5"]],
    ["right", "f", "[]", "[1, 2]", "[1.0000001, 2]", 0, ["1", '{"t":[0.5]}']],
  ]);
  await assertAnswers(false, [
    ["right", "f", "[]", "1", "1.0000001"],
    ["right", "f", "[]", "[1, 2]", "[1.0000001, 2]", 0, ["1", "[]"]],
    // Types must be the same, though types inside need not be.
    ["right", "f", "[]", "1", "1.0000001", 0, ["1", "0.5", "[1, 2]"]],
    ["right", "f", "[]", "0.5", '{"k":["m.Float",0.5000001]}'],
  ]);
});

Deno.test("sequences of other lengths are not close, though NumPy would repeat one of them", () =>
  assertAnswers(false, [
    ["right", "f", "[1]", "[1.5, 1.5]", "[1.5]"],
    ["right", "f", "[1]", "[1.5]", "[]"],
    ["right", "f", "[1]", "[1.5]", "1.5"],
  ]));

Deno.test("special rules accept what EvalPlus accepts", async () => {
  await assertAnswers(true, [
    ["right", "find_zero", "[[1, 2]]", "-0.5", "-0.50004", 1e-4],
    ["right", "are_equivalent", "[]", "true", "false"],
    ["right", "sum_div", "[1]", "1", "0"],
    ["right", "surface_Area", "[3,4]", "33", "35"],
    ["right", "digit_distance_nums", "[1, 256]", "1", "12"],
    ["right", "Diff", "[]", "[1,2]", '{"t":[2,1,1]}'],
    ["right", "check_str", "[]", '"x"', "true"],
    ["right", "check_str", "[]", "null", "null"],
    ["right", "check_str", "[]", '"x"', "5"],
  ]);
  await assertAnswers(false, [
    ["right", "find_zero", "[[1, 2]]", "-0.5", "-0.6", 1e-4],
    ["right", "find_zero", "[[1, 2]]", "-0.5", '"x"', 1e-4],
    ["right", "sum_div", "[1]", "1", "2"],
    ["right", "surface_Area", "[3,4]", "33", "34"],
    ["right", "Diff", "[]", "[1]", "[[1]]"],
    ["right", "check_str", "[]", '"x"', "false"],
    ["right", "check_str", "[]", "null", "5"],
    // Inputs on which the reference is wrong itself count, too.
    ["right", "find_zero", "[[1, 2]]", "7.0", "8.0", 1e-4],
    ["right", "f", "[]", '{"f":"nan"}', "1"],
    ["right", "f", "[]", '{"f":"nan"}', '{"f":"nan"}'],
  ]);
});
