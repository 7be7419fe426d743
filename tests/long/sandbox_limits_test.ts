/** Programs that tamper, eat memory, or are slowed by others. */
import { assertEquals } from "@std/assert";
import { openGrader } from "../../core/eval/grading/code/grade.ts";
import { fileURLToPath } from "node:url";
import { patiently } from "../../core/eval/grading/code/reference.ts";
import { type Job, runAll } from "../../core/eval/sandbox/job.ts";
import { Pool } from "../../core/eval/sandbox/pool.ts";
import { Child } from "../../core/eval/sandbox/process.ts";
import { until } from "../cli/serve_testing.ts";
import { withScratch } from "../scratch.ts";
import { PROBLEM } from "../unit/eval/sandbox_problem.ts";

const cacheFolder = await Deno.makeTempDir();
addEventListener("unload", () => Deno.removeSync(cacheFolder, { recursive: true }));

const folder = fileURLToPath(new URL(".", import.meta.resolve("pyodide")));
const SETTINGS = { folder, residentBytes: 450e6 };

/** Stands in for bubblewrap that is killed before it has tied what it starts to itself. */
const LOOSE_BUBBLEWRAP = `#!/bin/sh
while [ "$1" != --chdir ]; do shift; done
shift 2
exec 3<&0
"$@" <&3 &
wait
`;

Deno.test({
  name: "a child that outlives its bubblewrap ends when it is closed",
  ignore: Deno.build.os === "windows",
  fn: () =>
    withScratch(async (folder) => {
      await Deno.writeTextFile(`${folder}/bwrap`, LOOSE_BUBBLEWRAP, { mode: 0o755 });
      const path = Deno.env.get("PATH")!;
      Deno.env.set("PATH", `${folder}:${path}`);
      try {
        const child = new Child(SETTINGS, "bwrap");
        await child.ready;
        let isClosed = false;
        child.close().then(() => isClosed = true);
        await until(() => Promise.resolve(isClosed), "the child ends");
      } finally {
        Deno.env.set("PATH", path);
      }
    }),
});

Deno.test("programs that tamper with JavaScript change no result of others", async () => {
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
});

Deno.test("a child over its resident memory is replaced, and only its program fails", async () => {
  await using pool = new Pool(1, SETTINGS, "none");
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
});

Deno.test("memory that one job left behind is not counted against the next", async () => {
  await using pool = new Pool(1, { folder, residentBytes: 900e6 }, "none");
  const inputs = new Array<string>(30).fill(JSON.stringify(["x".repeat(1 << 20)]));
  const job = patiently("def f(text): return len(text)", "f", inputs, "");
  for (let round = 0; round < 3; round++) {
    const { ending, texts } = await runAll(pool, job);
    assertEquals([ending, texts.length], ["done", inputs.length]);
  }
});

Deno.test("a program slowed by others is run again alone and passes", async () => {
  await using grader = await openGrader({ shell: "none", workers: 2, cacheFolder });
  assertEquals((await grader.grade(PROBLEM, PROBLEM.canonicalSolution)).plus, "pass");
  // Over the limit of four seconds in its first run only: the file tells the second one.
  const slow = "import time\ndef f(x):\n    while time.time() < DEADLINE: pass\n" +
    "    return x * 31 + 7\n";
  const deadline = Date.now() / 1000 + 6;
  const result = await grader.grade(PROBLEM, slow.replace("DEADLINE", String(deadline)));
  assertEquals([result.base, result.plus], ["pass", "pass"]);
});
