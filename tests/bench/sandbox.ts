/**
 * The sandbox beside one `python3` process a task: 164 HumanEval reference solutions with their base
 * tests, both in one run.
 *
 * deno run -A tests/bench/sandbox.ts
 *
 * The sandbox is measured with expected results in the cache, as in every evaluation but the first; its
 * start is shown apart. Budget: half of the processes' time.
 */
import { openGrader } from "../../core/eval/grading/code/grade.ts";
import { readProblems } from "../code_problems.ts";
import { FIXTURES } from "../fixtures.ts";

const DATA = `${FIXTURES}eval/data/`;

/** Seconds that `run` takes. */
async function seconds(run: () => Promise<void>): Promise<number> {
  const begin = performance.now();
  await run();
  return (performance.now() - begin) / 1000;
}

const plain = await readProblems(`${DATA}humaneval/HumanEval.jsonl.gz`, "humaneval");
const problems = (await readProblems(`${DATA}humaneval_plus/HumanEvalPlus.jsonl.gz`, "humaneval"))
  .map((problem) =>
    problem.tests.kind === "inputs"
      ? { ...problem, tests: { ...problem.tests, plus: [] } }
      : problem
  );

/** The interpreter itself: `python3` may be a launcher that takes longer than the task. */
const python = await new Deno.Command("python3", {
  args: ["-c", "import sys; print(sys.executable)"],
}).output().then(({ stdout }) => new TextDecoder().decode(stdout).trim());

async function processes(): Promise<void> {
  for (const { prompt, canonicalSolution, tests, entryPoint } of plain) {
    const test = tests.kind === "check" ? tests.test : "";
    const program = `${prompt}${canonicalSolution}\n${test}\ncheck(${entryPoint})\n`;
    const { success } = await new Deno.Command(python, { args: ["-I", "-c", program] }).output();
    if (!success) throw new Error(`${entryPoint} fails`);
  }
}

const cacheFolder = await Deno.makeTempDir();
const rows: Record<string, string>[] = [];
for (const workers of [1, 2]) {
  let start = 0;
  const sandboxed: number[] = [];
  for (let round = 0; round < 4; round++) {
    const begin = performance.now();
    await using grader = await openGrader({ shell: "none", workers, cacheFolder });
    start = (performance.now() - begin) / 1000;
    const grade = async () => {
      const results = await Promise.all(
        problems.map((problem) =>
          grader.grade(problem, problem.prompt + problem.canonicalSolution)
        ),
      );
      if (!results.every(({ base }) => base === "pass")) throw new Error("a solution fails");
    };
    const taken = await seconds(grade);
    // The first round makes expected results.
    if (round > 0) sandboxed.push(taken);
  }
  const alone = await seconds(processes);
  const best = Math.min(...sandboxed);
  rows.push({
    workers: String(workers),
    "python3 processes, s": alone.toFixed(2),
    "sandbox, s": best.toFixed(2),
    "its start, s": start.toFixed(2),
    ratio: (best / alone).toFixed(3),
    "with start": ((best + start) / alone).toFixed(3),
  });
}
console.table(rows);
await Deno.remove(cacheFolder, { recursive: true });
