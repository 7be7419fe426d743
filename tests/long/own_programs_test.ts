/** Programs of the user's own benchmarks in the sandbox, whose start takes seconds. */
import { assertEquals, assertStringIncludes } from "@std/assert";
import { scored, withTasks } from "../cli/eval_testing.ts";
import { jsonLines, parseLines } from "../cli/models.ts";
import { runParscale } from "../cli/run.ts";

const PROGRAMS = jsonLines(
  { prompt: 'def double(x):\n    """Twice x."""', tests: "assert double(2) == 4" },
  { prompt: "Write inc(x).", tests: ["assert inc(1) == 2", "assert inc(-1) == 0"] },
  {
    prompt: "Write neg(x).",
    tests: "def check(candidate):\n    assert candidate(1) == -1",
    entry_point: "neg",
  },
);

Deno.test("own programs run in the sandbox with their tests", () =>
  withTasks({ "programs.jsonl": PROGRAMS }, async (cwd) => {
    const texts = [
      "    return 2 * x",
      "def inc(x):\n    return x + 1\n\nprint(inc(2))",
      "```python\ndef neg(x):\n    return x\n```",
    ];
    const allow = "--allow-code-execution";
    assertEquals(await scored(cwd, "programs.jsonl", texts, allow), { "pass@1": 2 / 3 });
    const ends = ["    raise SystemExit", "import sys\nsys.exit(0)", "def neg(x):\n    return -x"];
    assertEquals(await scored(cwd, "programs.jsonl", ends, allow), { "pass@1": 1 / 3 });
  }));

Deno.test("of several samples to a problem those that passed are kept, each once, without comments after them", () =>
  withTasks({ "programs.jsonl": PROGRAMS }, async (cwd) => {
    const inc = (text: string, sample: number) => ({ task: "programs", doc_id: 1, sample, text });
    const right = "def inc(x):\n    return x + 1\n";
    const samples = [right, "def inc(x):\n    return x\n", `${right}\n# Check it`];
    const stdin = jsonLines(...samples.map(inc));
    const line = "eval --score - --tasks programs.jsonl --ids 1 --allow-code-execution";
    const { stderr } = await runParscale(`${line} --passing --out run`, { cwd, stdin });
    assertStringIncludes(stderr, "1 answer of 3 passed");
    const rows = parseLines(Deno.readTextFileSync(`${cwd}/run/passing.jsonl`));
    assertEquals(rows, [{ prompt: "Write inc(x).\n", completion: right }]);
  }));
