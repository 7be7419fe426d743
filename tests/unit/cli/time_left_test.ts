/** Time left against what came, on recorded runs of `eval` and `train`: times of a processor, as the machine was shared. */
import { assert, assertEquals } from "@std/assert";
import { formatDuration } from "../../../cli/output/progress.ts";
import { AnswerWork, Rate, type Work } from "../../../cli/output/time_left.ts";
import { readFixture } from "../../fixtures.ts";

interface Recording {
  /** Milliseconds since the start, answer, tokens so far, and 1 where it ended. */
  readonly answers:
    readonly (readonly [ms: number, answer: number, tokens: number, ended: 0 | 1])[];
  /** Seconds of each step, each of as many tokens. */
  readonly steps: readonly number[];
}

const { answers, steps }: Recording = readFixture("golden/time_left.json");

/** Requires that over the second half the time left is within a third of what came, and a second. */
function assertTold(reports: readonly (readonly [ms: number, work: Work])[]): void {
  const [[began, { done }]] = reports as [readonly [number, Work]];
  const rate = new Rate(began, done);
  const end = reports.at(-1)![0];
  let told = 0;
  for (const [ms, { done, total }] of reports) {
    rate.report(ms, done);
    if (ms < end / 2) continue;
    const came = (end - ms) / 1000, seconds = rate.secondsFor(total! - done, ms)!;
    assert(Math.abs(seconds - came) <= came / 3 + 1, `${seconds} s left, ${came} s came`);
    told++;
  }
  assert(told > 5);
}

Deno.test("time left of answers of unknown length is within a third over the second half", () => {
  const width = 8, work = new AnswerWork(answers.filter(([, , , ended]) => ended).length, width);
  const lengths = new Map<number, number>();
  assertTold(answers.map(([ms, answer, tokens, ended]) => {
    for (let length = lengths.get(answer) ?? 0; length < tokens; length++) work.grow();
    lengths.set(answer, tokens);
    if (ended) work.end();
    return [ms, work.work] as const;
  }));
});

Deno.test("time left of steps is within a quarter over the second half", () => {
  let ms = 0;
  assertTold(steps.map((seconds, i) => {
    return [ms += 1000 * seconds, { done: i + 1, total: steps.length }] as const;
  }));
});

Deno.test("time left falls with the clock while nothing is reported", () => {
  const rate = new Rate(0);
  assertEquals(rate.secondsFor(30, 500), undefined);
  rate.report(10_000, 10);
  assertEquals([10_000, 11_000, 25_000].map((ms) => rate.secondsFor(30, ms)), [30, 29, 15]);
  rate.report(12_000, 10); // the same work again
  assertEquals(rate.secondsFor(30, 12_000), 28);
});

Deno.test("the rate of the latest half counts: slow first steps are forgotten", () => {
  const rate = new Rate(0);
  rate.report(10_000, 1);
  for (let step = 1; step <= 50; step++) rate.report(10_000 + 1000 * step, 1 + step);
  assertEquals([rate.perSecond, rate.secondsFor(50, 60_000)], [1, 50]);
  // A large report counts with the small one that follows it.
  const uneven = new Rate(0);
  for (const [ms, done] of [[1, 1], [10, 545], [6000, 546]] as const) uneven.report(ms, done);
  assertEquals(Math.round(uneven.perSecond!), 91);
});

Deno.test("what an earlier run has done does not count in the rate", () => {
  const rate = new Rate(3, 300);
  assertEquals(rate.perSecond, undefined);
  rate.report(10_003, 400);
  assertEquals(rate.perSecond, 10);
});

Deno.test("answers under way are taken for half done, and no total is told before one has ended", () => {
  const work = new AnswerWork(4, 2);
  for (let token = 0; token < 20; token++) work.grow();
  assertEquals(work.work, { done: 20 });
  work.end();
  assertEquals(work.work, { done: 20, total: 20 + 3 * 10 });
});

Deno.test("durations read well at every length", () => {
  assertEquals([0.4, 45, 185, 7620].map(formatDuration), ["0s", "45s", "3m05s", "2h07m"]);
});
