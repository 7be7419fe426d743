/** Time left against what came, on recorded runs of `eval` and `train`: times of a processor, as the machine was shared. */
import { assert, assertEquals } from "@std/assert";
import { ComparisonWork, readWritten } from "../../../cli/commands/compare/work.ts";
import { AnswerWork, FileWork, TimeLeft, type Work } from "../../../cli/output/time_left.ts";
import { jsonLines } from "../../cli/models.ts";
import { withScratch } from "../../scratch.ts";

interface Recording {
  /** Milliseconds since the start, answer, tokens so far, and 1 where it ended. */
  readonly answers:
    readonly (readonly [ms: number, answer: number, tokens: number, ended: 0 | 1])[];
  /** Seconds of each step, each of as many tokens. */
  readonly steps: readonly number[];
}

const { answers, steps }: Recording = JSON.parse(
  await Deno.readTextFile(new URL("../../../fixtures/golden/time_left.json", import.meta.url)),
);

/** Requires that over the second half the time left is within a quarter of what came, and a second. */
function assertTold(reports: readonly (readonly [ms: number, work: Work | undefined])[]): void {
  const left = new TimeLeft(0);
  const end = reports.at(-1)![0];
  let told = 0;
  for (const [ms, work] of reports) {
    if (work) left.report(ms, work);
    if (ms < end / 2) continue;
    const came = (end - ms) / 1000, seconds = left.at(ms)!;
    assert(Math.abs(seconds - came) <= 0.25 * came + 1, `${seconds} s left, ${came} s came`);
    told++;
  }
  assert(told > 5);
}

Deno.test("time left of answers of unknown length is within a quarter over the second half", () => {
  const work = new AnswerWork(answers.filter(([, , , ended]) => ended).length, 150);
  assertTold(answers.map(([ms, answer, tokens, ended]) => {
    if (ended) work.end(answer, tokens);
    else work.grow(answer, tokens);
    return [ms, work.work] as const;
  }));
});

Deno.test("time left of steps is within a quarter over the second half", () => {
  let ms = 0;
  assertTold(steps.map((seconds, i) => {
    return [ms += 1000 * seconds, { done: i + 1, total: steps.length }] as const;
  }));
});

Deno.test("time left falls with the clock while nothing is reported, and never below zero", () => {
  const left = new TimeLeft(0);
  assertEquals(left.at(500), undefined);
  left.report(10_000, { done: 10, total: 40 });
  assertEquals([10_000, 11_000, 25_000, 90_000].map((ms) => left.at(ms)), [30, 29, 15, 0]);
  left.report(12_000, { done: 10, total: 40 }); // the same work again
  assertEquals(left.at(12_000), 28);
});

Deno.test("the rate of the latest half counts: slow first steps are forgotten", () => {
  const left = new TimeLeft(0);
  left.report(10_000, { done: 1, total: 101 });
  for (let step = 1; step <= 50; step++) {
    left.report(10_000 + 1000 * step, { done: 1 + step, total: 101 });
  }
  assertEquals(left.at(60_000), 50);
});

Deno.test("answers that are longer than those that ended end soon", () => {
  const work = new AnswerWork(2);
  assertEquals(work.work, undefined);
  work.grow("a", 10);
  work.grow("b", 10);
  work.end("a", 20);
  assertEquals(work.work, { done: 20, total: 30 });
  work.grow("b", 40);
  assertEquals(work.work, { done: 50, total: 55 });
});

Deno.test("a comparison counts tokens, of this run alone, and expects as many of every sample", () =>
  withScratch(async (cwd) => {
    const path = `${cwd}/samples.jsonl`;
    const sample = (tokens: number) => ({ text: '"tokens":9', tokens });
    const write = (...tokens: number[]) =>
      Deno.writeTextFile(path, jsonLines(...tokens.map(sample)));
    // Two evaluations of four samples, and one timing of two behind each.
    const work = new ComparisonWork(12), none = { samples: 0, tokens: 0 };
    assertEquals([readWritten(path), work.at(none, none)], [none, undefined]);
    await write(10, 30);
    const before = readWritten(path);
    assertEquals(before, { samples: 2, tokens: 40 });
    assertEquals(work.at(before, before), { done: 0, total: 200 });
    await write(10, 30, 50);
    assertEquals(work.at(readWritten(path), before), { done: 50, total: 320 });
    await write(10, 30, 50, 30);
    work.at(readWritten(path), before);
    work.end(4, readWritten(path), before);
    work.end(2, none, none);
    assertEquals(work.samples, 6);
    assertEquals(work.at(none, none), { done: 140, total: 320 });
  }));

Deno.test("rows that an earlier run has scored do not count in the rate of a resumed one", () => {
  const work = new FileWork(1000), left = new TimeLeft(0);
  for (const read of [100, 200, 300]) {
    work.skip(read);
    left.report(read / 100, work.at(read)!);
  }
  assertEquals(left.at(3), undefined);
  left.report(10_003, work.at(400)!);
  assertEquals(left.at(10_003), 10_003 / 100 * 600 / 1000);
  assertEquals(new FileWork(0).at(400), undefined);
});
