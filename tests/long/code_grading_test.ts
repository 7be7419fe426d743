/** Programs that are run: sanitising, statuses, kept references, against the goldens of EvalPlus. */
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { type Grader, openGrader } from "../../core/eval/grading/code/grade.ts";
import { readProblems } from "../code_problems.ts";
import { fixtureRows } from "../fixtures.ts";
import { find, golden, PLAIN } from "../unit/eval/grading/code_goldens.ts";

const CACHE = await Deno.makeTempDir();
addEventListener("unload", () => Deno.removeSync(CACHE, { recursive: true }));

let grader: Grader;

Deno.test.beforeAll(async () => {
  grader = await openGrader({ shell: "none", workers: 2, cacheFolder: CACHE });
});

Deno.test.afterAll(async () => await grader[Symbol.asyncDispose]());

Deno.test("programs are sanitised as the goldens say", async () => {
  for (const { entry_point, solution, sanitized } of golden("sanitize")) {
    assertEquals(await grader.sanitize(solution, entry_point), sanitized);
  }
  // Comments on the last line of a definition, and behind it in its own block.
  const comments = fixtureRows("golden/eval/cases_sanitize_comments.jsonl");
  for (const { entry_point, solution, sanitized } of comments) {
    assertEquals(await grader.sanitize(solution, entry_point), sanitized, solution);
  }
  // Indents, blank lines and parentheses, and random programs.
  const programs = fixtureRows("golden/eval/cases_sanitize_programs.jsonl");
  for (const { entry_point, solution, sanitized, note } of programs) {
    assertEquals(await grader.sanitize(solution, entry_point), sanitized, `${note}: ${solution}`);
  }
  assertEquals(await grader.sanitize("", "f"), "");
  assertEquals(await grader.sanitize("a, b = c\nx.y = c\nf = c", "f"), "a, b = c\nf = c");
  // A text on which the parser gives up still comes back.
  const deep = `f = ${"(".repeat(5000)}${")".repeat(5000)}`;
  assertEquals(await grader.sanitize(deep, "f"), deep);
});

Deno.test("statuses are those of EvalPlus", async () => {
  await Promise.all(
    golden("execution").map(async (row) => {
      const problem = find(row.dataset, row.task_id);
      const { base, plus } = await grader.grade(problem, row.solution);
      const name = `${row.task_id}, ${row.note}`;
      assertEquals([name, base, plus], [name, row.base_status, row.plus_status]);
    }),
  );
});

const ADD = "def add(x, y): return x + y\n";

/** Programs on which Pythons differ, and the end of their error in CPython 3.11, where they have one. */
const BY_VERSION: readonly (readonly [program: string, error?: string])[] = [
  ["def add(x: List[int], y): return x + y", "name 'List' is not defined"],
  ["def add(x, y) -> Optional[int]: return x + y", "name 'Optional' is not defined"],
  [`d = {"a": 1}\nm = f"{d["a"]}"\n${ADD}`, "f-string: unmatched '['"],
  [
    `try: pass\nexcept ValueError, TypeError: pass\n${ADD}`,
    "multiple exception types must be parenthesized",
  ],
  [`import ast\nast.Num\n${ADD}`],
  [
    "def add(x, y):\n  def f(z) -> Dict[str, int]: pass\n  return x + y",
    "name 'Dict' is not defined",
  ],
  [`class State:\n  seen: Set[int] = set()\n${ADD}`, "name 'Set' is not defined"],
  [`m = f"{'\\n'.join('ab')}"\n${ADD}`, "f-string expression part cannot include a backslash"],
  [`def first[T](items: list[T]) -> T: return items[0]\n${ADD}`, "expected '('"],
  [`type Pair = tuple\n${ADD}`, "invalid syntax"],
  [`from itertools import batched\n${ADD}`, "cannot import name 'batched' from 'itertools'"],
  [`assert sum([0.1] * 10) == 0.9999999999999999\n${ADD}`],
  [`import imp, unittest\nunittest.TestCase.assertEquals\n${ADD}`],
  [`from __future__ import annotations\n${ADD.replace("(x", "(x: List[int]")}`],
  ["def add(x, y):\n  total: Tally[int] = x + y\n  return total"],
];

Deno.test("programs pass and fail as under CPython 3.11", async () => {
  assertMatch(grader.pythonVersion, /^3\.11\./);
  const problem = find("humaneval", "HumanEval/53");
  for (const [program, error] of BY_VERSION) {
    const { base, plus, detail = "" } = await grader.grade(problem, program);
    const expected = error === undefined ? "pass" : "fail";
    assertEquals([base, plus], [expected, expected], program);
    assertStringIncludes(detail, error ?? "");
  }
});

Deno.test("plain HumanEval grades by its check", async () => {
  const problems = await readProblems(PLAIN, "humaneval");
  const at = (number: number) => problems[number]!;
  const grade = async (number: number, body: string) =>
    (await grader.grade(at(number), at(number).prompt + body)).base;
  assertEquals(await grade(53, "    return x + y\n"), "pass");
  assertEquals(await grade(53, "    return x - y\n"), "fail");
  assertEquals(await grade(2, "    return round(number % 1, 9)\n"), "pass");
  // The check itself uses the prompt's own functions here.
  assertEquals(await grade(38, at(38).canonicalSolution), "pass");
  assertEquals(await grade(32, "    return 0.0\n"), "fail");
});

Deno.test("expected results are kept, and a damaged file is made again", async () => {
  const cacheFolder = await Deno.makeTempDir();
  const folder = `${cacheFolder}/expected`;
  const problem = find("humaneval", "HumanEval/53");
  const grade = async () => {
    await using grader = await openGrader({ shell: "none", workers: 1, cacheFolder });
    return (await grader.grade(problem, problem.prompt + problem.canonicalSolution)).plus;
  };
  assertEquals(await grade(), "pass");
  const [file, ...others] = [...Deno.readDirSync(folder)].map(({ name }) => name);
  assertEquals(others, []);
  const whole = await Deno.readFile(`${folder}/${file}`);
  await Deno.writeFile(`${folder}/${file}`, whole.subarray(0, whole.length >> 1));
  assertEquals(await grade(), "pass");
  assertEquals(await Deno.readFile(`${folder}/${file}`).then((bytes) => bytes.length > 100), true);
  await Deno.remove(cacheFolder, { recursive: true });
});

Deno.test("a module that this Python lacks does not fail in silence", async () => {
  const problem = find("humaneval", "HumanEval/53");
  const { base, plus, detail } = await grader.grade(problem, "import numpy\ndef add(x, y): 0");
  assertEquals([base, plus], ["unavailable", "unavailable"]);
  assertEquals(detail, 'this Python has no module "numpy"');
  assertEquals((await grader.grade(problem, "import nunpy\n")).base, "fail");
});

/** Texts that a program answers with in place of its encoded results. */
const HOSTILE = {
  "a hundred thousand brackets": `"[" * 100000 + "]" * 100000`,
  "an integer of a million digits": `'{"x":"%s"}' % ("f" * 1000000)`,
  "a set of colliding hashes": `'{"s":%s}' % [(i + 1) * (2 ** 31 - 1) for i in range(30000)]`,
  "text that is not JSON": `"]"`,
};

Deno.test("hostile results are wrong, and change no later grade", async (t) => {
  const problem = find("humaneval", "HumanEval/53");
  // Right, in another text than the reference's, so that Python compares it.
  const right = "class Whole(int): pass\ndef add(x, y): return Whole(x + y)";
  for (const [name, text] of Object.entries(HOSTILE)) {
    await t.step(name, async () => {
      const program = `import __main__\n__main__.encode = lambda value: ${text}\n${right}`;
      const begin = performance.now();
      const { base, detail } = await grader.grade(problem, program);
      assertEquals([base, detail], ["fail", "input 0 is wrong"]);
      assert(performance.now() - begin < 60_000);
      assertEquals((await grader.grade(problem, right)).plus, "pass");
    });
  }
});
