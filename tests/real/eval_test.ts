/** Benchmarks with a real model, beside what lm-evaluation-harness recorded. */
import { assert, assertEquals } from "@std/assert";
import { parseLines, succeed } from "../cli/models.ts";
import { withScratch } from "../scratch.ts";
import { realTest } from "./model.ts";
import { FIXTURES } from "../fixtures.ts";

const FOLDER = `${FIXTURES}golden/smollm2-135m/`;

/** Of a whole choice; both sides compute in f32. Measured: 5.9e-4. */
const LOGLIKELIHOOD_TOLERANCE = 2e-3;

/** A row as the harness scored it. */
interface Recorded {
  readonly loglikelihoods: readonly number[];
  readonly acc: number;
  readonly acc_norm: number;
}

const RECORDED: Readonly<Record<string, readonly Recorded[]>> = JSON.parse(
  Deno.readTextFileSync(`${FOLDER}harness.json`),
);

function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

realTest(
  "eval gives the choices and scores of lm-evaluation-harness",
  (path) =>
    withScratch(async (cwd) => {
      const tasks = Object.keys(RECORDED);
      const asked = ["--tasks", tasks.join(","), "--shots", "0", "--data", `${FOLDER}rows`];
      const args = ["eval", "--model", path, "--quantize", "none", ...asked, "--out", "res", "-q"];
      await succeed(args, { cwd });
      const samples = parseLines(await Deno.readTextFile(`${cwd}/res/samples.jsonl`));
      assertEquals(samples.length, Object.values(RECORDED).flat().length);
      for (const { task, doc_id, loglikelihood } of samples) {
        const { loglikelihoods } = RECORDED[task]![doc_id]!;
        assertEquals(loglikelihood.length, loglikelihoods.length, `${task} ${doc_id}`);
        const worst = Math.max(...loglikelihoods.map((at, i) => Math.abs(at - loglikelihood[i])));
        assert(worst <= LOGLIKELIHOOD_TOLERANCE, `${task} ${doc_id} differs by ${worst}`);
      }
      const { results } = JSON.parse(await Deno.readTextFile(`${cwd}/res/results.json`));
      for (const task of tasks) {
        const { metrics } = results.tasks.find((one: { task: string }) => one.task === task);
        for (const metric of ["acc", "acc_norm"] as const) {
          const expected = mean(RECORDED[task]!.map((row) => row[metric]));
          const { value } = metrics.find((one: { metric: string }) => one.metric === metric);
          assertEquals(value, expected, `${task} ${metric}`);
        }
      }
    }),
);
