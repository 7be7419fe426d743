/**
 * The attack programs against the sandbox, and those that bubblewrap could change within it too.
 *
 * After each, an honest program must pass and a wrong one fail in the same child or its replacement, and
 * the expected values must be unchanged. A grader gives endless programs 20 s and more, so that all but
 * one run as jobs with a limit of their own. A refused call ends the child, and a new one takes two seconds:
 * repeated refusals, and those inside bubblewrap, run with `PARSCALE_LONG_TESTS=1` only.
 */
import { assert, assertEquals, assertMatch } from "@std/assert";
import type { CodeProblem } from "../../core/eval/grading/code/problems.ts";
import { openGrader } from "../../core/eval/grading/code/grade.ts";
import { bubblewrapArguments } from "../../core/eval/sandbox/command.ts";
import { runAll } from "../../core/eval/sandbox/job.ts";
import { openSandboxes } from "../../core/eval/sandbox/open.ts";
import { ATTACKS, ENDLESS, OUTWARD } from "./sandbox_attacks.ts";
import { type Attack, bubblewrapWorks, HONEST, REFUSED } from "./sandbox_programs.ts";

const FOLDER = await Deno.makeTempDir();
Deno.env.set("PARSCALE_TEST_SECRET", "an-environment-secret");
addEventListener("unload", () => Deno.removeSync(FOLDER, { recursive: true }));

const PROBLEM: CodeProblem = {
  taskId: "HumanEval/1000",
  benchmark: "humaneval",
  prompt: "",
  entryPoint: "f",
  canonicalSolution: "# the reference solution 4711\ndef f(x):\n    return x * 31 + 7\n",
  tests: { kind: "inputs", base: ["[1]", "[2]", "[3]"], plus: ["[4]", "[5]"], atol: 0 },
};

/** Answers right, and only if the interpreter is as it should be. */
const CHECKING = `
import builtins, gc, json, math, os, random, sys, threading
def f(x):
    assert len([1, 2]) == 2 and sum([1, 2]) == 3 and math.sqrt(4) == 2 and isinstance(1, int)
    assert json.loads("[1]") == [1] and sorted([2, 1]) == [1, 2] and not hasattr(builtins, "left")
    assert not hasattr(sys, "left") and sys.gettrace() is None and gc.isenabled()
    assert sys.getrecursionlimit() < 100000 and threading.active_count() == 1
    assert not os.path.exists("/tmp/left") and "LEFT" not in os.environ
    assert os.getcwd() != "/dev" and random.Random(1).random() == 0.13436424411240122
    return x * 31 + 7
`;
const WRONG = "def f(x): return x * 31 + 8";

async function expectedValues(cache: string): Promise<string[]> {
  const files = [...Deno.readDirSync(`${cache}/expected`)].map(({ name }) => name).sort();
  return await Promise.all(
    files.map(async (name) =>
      `${name} ${(await Deno.readFile(`${cache}/expected/${name}`)).toHex()}`
    ),
  );
}

const hasBubblewrap = await bubblewrapWorks();
const IN_FULL = Deno.env.get("PARSCALE_LONG_TESTS") === "1";
const isRefused = ({ detail }: Attack) => detail === REFUSED;

for (
  const [shell, all, isLeftOut] of [
    ["none", ATTACKS, (attack: Attack) => attack.repeats],
    ["bwrap", OUTWARD, isRefused],
  ] as const
) {
  const attacks = all.filter((attack) => IN_FULL || !isLeftOut(attack));
  Deno.test({
    name: `attack programs fail and leave nothing behind (shell: ${shell})`,
    ignore: shell === "bwrap" && !hasBubblewrap,
    fn: async (t) => {
      const cacheFolder = `${FOLDER}/${shell}`;
      // One worker: the programs that follow meet the interpreter that the attack had.
      await using grader = await openGrader({ shell, workers: 1, cacheFolder });
      assertEquals((await grader.grade(PROBLEM, CHECKING)).plus, "pass");
      const before = await expectedValues(cacheFolder);
      for (const { number, name, program, detail } of attacks) {
        await t.step(`${number}: ${name}`, async () => {
          const grade = await grader.grade(PROBLEM, program);
          const { base } = grade;
          assert(base === "fail" || base === "timeout", `${base}: ${grade.detail}`);
          assertEquals(grade.plus, base);
          if (detail) assertMatch(grade.detail ?? "", detail);
          const after = await grader.grade(PROBLEM, CHECKING);
          assertEquals([after.base, after.plus, after.detail], ["pass", "pass", undefined]);
          assertEquals((await grader.grade(PROBLEM, WRONG)).base, "fail");
          assertEquals(await expectedValues(cacheFolder), before);
        });
      }
      for (const [name, program] of Object.entries(HONEST)) {
        await t.step(`an honest program that ${name} passes`, async () => {
          const { plus, detail } = await grader.grade(PROBLEM, program);
          assertEquals([plus, detail], ["pass", undefined]);
        });
      }
    },
  });
}

Deno.test("endless programs end at their limits and leave nothing behind", async (t) => {
  const shell = hasBubblewrap ? "bwrap" : "none";
  await using sandboxes = await openSandboxes({ workers: 1, shell });
  const run = (source: string, limit: number) =>
    runAll(sandboxes.solutions, {
      source,
      entryPoint: "f",
      inputs: ["[1]", "[2]"],
      rule: "",
      limits: [limit, limit],
      totalLimit: 2 * limit,
      clock: "cpu",
    });
  for (const { number, name, program } of ENDLESS) {
    await t.step(`${number}: ${name}`, async () => {
      const { ending, texts } = await run(program, 1);
      assert(ending === "input_limit" || ending === "killed", ending);
      assertEquals(texts, []);
      assertEquals((await run(CHECKING, 60)).texts, ["=38", "=69"]);
    });
  }
});

/** Attacks 69 to 73: what native code could do behind a hole in V8. */
const NATIVE: Readonly<Record<string, string>> = {
  "69: remounts the system": "mount -o remount,rw,bind /usr",
  "69: remounts the root": "mount -o remount,rw /",
  "70: makes a user namespace": "unshare --user true",
  "71: writes the core pattern": "echo x > /proc/sys/kernel/core_pattern",
  "72: writes shared memory": "echo x > /dev/shm/x",
  "72: writes a temporary file": "echo x > /tmp/x || echo x > /x",
  "73: reaches the network": "exec 3<>/dev/tcp/127.0.0.1/PORT",
};

Deno.test({
  name: "native code inside bubblewrap has no rights",
  ignore: !hasBubblewrap,
  fn: async (t) => {
    using listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
    const port = String((listener.addr as Deno.NetAddr).port);
    const run = (script: string) =>
      new Deno.Command("bwrap", {
        args: [...bubblewrapArguments([]), "/bin/bash", "-c", script.replace("PORT", port)],
        stderr: "null",
      }).output();
    assert((await run("true")).success);
    for (const [name, script] of Object.entries(NATIVE)) {
      await t.step(name, async () => assert(!(await run(script)).success));
    }
    await t.step("sees no other process and no file of a home but Deno", async () => {
      const { stdout } = await run("ls /proc | grep -c '^[0-9]'; find /home /root -type f");
      const [processes, ...files] = new TextDecoder().decode(stdout).trim().split("\n");
      assert(Number(processes) <= 6, `${processes} processes`);
      assertEquals(files.filter((file) => file !== Deno.execPath()), []);
    });
  },
});

Deno.test("every numbered attack on the interpreter has a program", () => {
  const numbers = new Set([...ATTACKS, ...ENDLESS].map(({ number }) => number));
  const missing = Array.from({ length: 68 }, (_, i) => i + 1).filter((n) => !numbers.has(n));
  // The end of the evaluator is tested in sandbox_orphans_test.ts.
  assertEquals(missing, [45]);
});
