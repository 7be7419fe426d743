/** The parts of the sandbox: results that count, kept references, limits, slots. */
import { assert, assertEquals } from "@std/assert";
import { type CodeProblem, openGrader } from "../../../core/eval/grading/code/mod.ts";
import { References } from "../../../core/eval/grading/code/reference.ts";
import { Slots } from "../../../core/eval/grading/code/slots.ts";
import { pathOf } from "../../../core/eval/sandbox/command.ts";
import type { End, Job, Results, Sandbox } from "../../../core/eval/sandbox/job.ts";
import { Pool } from "../../../core/eval/sandbox/pool.ts";
import { lines } from "../../../core/eval/sandbox/protocol.ts";

const PROBLEM: CodeProblem = {
  taskId: "HumanEval/1000",
  benchmark: "humaneval",
  prompt: "",
  entryPoint: "f",
  canonicalSolution: "def f(x):\n    return x * 31 + 7\n",
  tests: { kind: "inputs", base: ["[1]", "[2]"], plus: ["[3]"], atol: 0 },
};

/** A sandbox whose jobs answer `texts`. */
function answering(texts: readonly string[], ending: End["ending"] = "done"): Sandbox {
  return {
    run: (_job: Job, onResults: (results: Results) => boolean) => {
      onResults({ first: 0, texts, seconds: texts.map(() => 0.001) });
      return Promise.resolve({ ending });
    },
  };
}

async function withFolder(test: (folder: string) => Promise<void>): Promise<void> {
  const folder = await Deno.makeTempDir();
  try {
    await test(folder);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

Deno.test("an incomplete or forged reference is neither used nor written", () =>
  withFolder(async (folder) => {
    for (const texts of [[], ["=38"], ["=38", "=69", "=100", "=131"], ["", "", ""]]) {
      const references = new References(answering(texts), "3.14", folder);
      assert("unavailable" in await references.of(PROBLEM), JSON.stringify(texts));
    }
    assertEquals(await Array.fromAsync(Deno.readDir(folder)), []);
    const whole = new References(answering(["=38", "=69", "=100"]), "3.14", folder);
    const reference = await whole.of(PROBLEM);
    assertEquals("expected" in reference && reference.expected, ["=38", "=69", "=100"]);
  }));

Deno.test("a kept reference with fewer results than inputs is not read", () =>
  withFolder(async (folder) => {
    await new References(answering(["=38", "=69", "=100"]), "3.14", folder).of(PROBLEM);
    const [{ name }] = await Array.fromAsync(Deno.readDir(`${folder}/expected`)) as [
      Deno.DirEntry,
    ];
    const poisoned = JSON.stringify({ calls: null, texts: [], seconds: [] });
    const { gzipSync } = await import("node:zlib");
    await Deno.writeFile(`${folder}/expected/${name}`, gzipSync(poisoned));
    const again = await new References(answering(["=38", "=69", "=100"]), "3.14", folder)
      .of(PROBLEM);
    assertEquals("expected" in again && again.expected.length, 3);
  }));

Deno.test("programs that tamper with JavaScript change no result of others", () =>
  withFolder(async (cacheFolder) => {
    const tampering = [
      "to_js([]).constructor.prototype.entries = lambda *a: iter(())",
      "to_js(b'').constructor.prototype.set = lambda *a: None",
      "to_js(b'').constructor.prototype.fill = lambda *a: None",
      "to_js([]).constructor.prototype.push = lambda *a: 0",
    ].map((line) =>
      `from pyodide.ffi import to_js\ntry: ${line}\nexcept BaseException: pass\ndef f(x): return 0`
    );
    const wrong = Array.from({ length: 36 }, (_, i) => `def f(x): return x * 31 + ${i + 8}`);
    await using grader = await openGrader({ shell: "none", workers: 2, cacheFolder });
    const programs = [...tampering, ...wrong];
    const results = await Promise.all(programs.map((program) => grader.grade(PROBLEM, program)));
    assertEquals(results.filter(({ base }) => base !== "fail"), []);
    assertEquals((await grader.grade(PROBLEM, PROBLEM.canonicalSolution)).plus, "pass");
  }));

Deno.test("a child over its resident memory is replaced, and only its program fails", () =>
  withFolder(async () => {
    const folder = pathOf(new URL(".", import.meta.resolve("pyodide")));
    const settings = { snapshot: null, folder, residentBytes: 450e6 };
    await using pool = new Pool(1, settings, "none");
    const job = (source: string): Job => ({
      source,
      entryPoint: "f",
      inputs: ["[1]"],
      rule: "",
      limits: [20],
      totalLimit: 20,
    });
    const hungry = "keep = []\ndef f(x):\n    while True: keep.append(bytes(10 ** 6))";
    assertEquals((await pool.run(job(hungry), () => true)).ending, "memory");
    assertEquals((await pool.run(job("def f(x): return x"), () => true)).ending, "done");
  }));

Deno.test("a program slowed by others is run again alone and passes", () =>
  withFolder(async (cacheFolder) => {
    await using grader = await openGrader({ shell: "none", workers: 2, cacheFolder });
    assertEquals((await grader.grade(PROBLEM, PROBLEM.canonicalSolution)).plus, "pass");
    // Over the limit of four seconds in its first run only: the file tells the second one.
    const slow = "import time\ndef f(x):\n    while time.time() < DEADLINE: pass\n" +
      "    return x * 31 + 7\n";
    const deadline = Date.now() / 1000 + 6;
    const result = await grader.grade(PROBLEM, slow.replace("DEADLINE", String(deadline)));
    assertEquals([result.base, result.plus], ["pass", "pass"]);
  }));

Deno.test("slots: jobs overlap up to the limit, work alone overlaps none and is not overtaken", async () => {
  const slots = new Slots(2);
  let running = 0, most = 0;
  const order: string[] = [];
  const work = (name: string) => async () => {
    most = Math.max(most, ++running);
    await new Promise((resolve) => setTimeout(resolve, 5));
    running--;
    order.push(name);
    return { ending: "done" } as const;
  };
  const run = (name: string) => slots.limit({ run: work(name) }).run({} as Job, () => true);
  const before = [run("a"), run("b"), run("c")];
  const alone = slots.alone(async () => {
    assertEquals(running, 0);
    await work("alone")();
  });
  const after = [run("d"), run("e")];
  await Promise.all([...before, alone, ...after]);
  assertEquals(most, 2);
  assertEquals(order.indexOf("alone"), 3);
});

Deno.test("lines over the limit are dropped while they are read", async () => {
  const text = `short\n${"x".repeat(100)}\n${"y".repeat(5)}\n`;
  const found: string[] = [];
  for await (const line of lines(new Blob([text]).stream(), 50)) found.push(line);
  assertEquals(found, ["short", "yyyyy"]);
});
