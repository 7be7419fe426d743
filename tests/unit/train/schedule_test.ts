/** Protects the learning rate: values at the joints of each phase, and refusals. */
import { assert, assertAlmostEquals, assertEquals, assertThrows } from "@std/assert";
import { UsageError } from "../../../core/base/errors.ts";
import { learningRateFactor, type ScheduleOptions } from "../../../core/train/schedule.ts";

const COSINE: ScheduleOptions = { kind: "cosine", steps: 100, warmup: 10, minFactor: 0.03 };
const WSD: ScheduleOptions = { ...COSINE, kind: "wsd", decay: 20 };
const CONSTANT: ScheduleOptions = { ...COSINE, kind: "constant" };

const curve = (options: ScheduleOptions) =>
  Array.from({ length: options.steps }, (_, i) => learningRateFactor(options, i + 1));

Deno.test("warm-up rises in a line and reaches the peak at its last step", () => {
  for (const options of [COSINE, WSD, CONSTANT]) {
    assertEquals(curve(options).slice(0, 10), [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1]);
  }
  assertEquals(learningRateFactor({ ...CONSTANT, warmup: 0 }, 1), 1);
  assertEquals(learningRateFactor({ ...COSINE, warmup: 1 }, 1), 1);
});

Deno.test("cosine falls without a break from the peak to the lowest factor", () => {
  const factors = curve(COSINE);
  assertEquals(factors[99], 0.03);
  assertAlmostEquals(factors[54]!, 0.515, 1e-15); // half way
  assertAlmostEquals(factors[39]!, 0.03 + 0.97 * 0.75, 1e-15); // a third of the way: cos 60°
  for (let i = 10; i < 100; i++) assert(factors[i]! < factors[i - 1]!);
  assertEquals(learningRateFactor({ ...COSINE, minFactor: 0 }, 100), 0);
});

Deno.test("WSD stays at the peak until its decay, which is a line", () => {
  const factors = curve(WSD);
  assertEquals(new Set(factors.slice(9, 80)), new Set([1]));
  assertAlmostEquals(factors[80]!, 1 - 0.97 / 20, 1e-15);
  assertAlmostEquals(factors[89]!, 1 - 0.97 / 2, 1e-15);
  assertEquals(factors[99], 0.03);
  assertEquals(learningRateFactor({ ...WSD, decay: 90 }, 10), 1);
});

Deno.test("a constant schedule is 1 after warm-up, and steps past the end keep the last factor", () => {
  assertEquals(new Set(curve(CONSTANT).slice(9)), new Set([1]));
  for (const options of [COSINE, WSD]) assertEquals(learningRateFactor(options, 1e6), 0.03);
  assertEquals(learningRateFactor(CONSTANT, 1e6), 1);
  assertEquals(learningRateFactor({ ...COSINE, warmup: 100 }, 1e6), 1);
});

Deno.test("phases that do not fit are refused", () => {
  const bad: Partial<ScheduleOptions>[] = [
    { steps: 0 },
    { steps: 1.5 },
    { warmup: -1 },
    { warmup: 101 },
    { minFactor: 1.1 },
    { minFactor: NaN },
    { kind: "wsd" },
    { kind: "wsd", decay: 91 },
  ];
  for (const changes of bad) {
    assertThrows(() => learningRateFactor({ ...COSINE, ...changes }, 1), UsageError);
  }
});
