/** Model ops on the reference device against plain loops that are written here a second time. */
import { assert, assertAlmostEquals } from "@std/assert";
import { RandomStream } from "../../../core/base/random.ts";
import type { Program } from "../../../core/graph/program.ts";
import { elementCount } from "../../../core/graph/types.ts";
import { streamWeights } from "../../../core/ops/aggregate.ts";
import { attention } from "../../../core/ops/attention.ts";
import { rope, ropeTables } from "../../../core/ops/rope.ts";
import { softmax } from "../../../core/ops/softmax.ts";
import { tokenLogprobs } from "../../../core/ops/token_logprobs.ts";
import { ReferenceDevice } from "../../../core/runtime/reference/device.ts";
import { type Data, programOf, runOn } from "../../device/programs.ts";

/** The result of a program. */
async function resultOf(program: Program, data: Data): Promise<number[]> {
  return [...(await runOn(new ReferenceDevice(), program, data)).get("result")!];
}

function assertClose(actual: readonly number[], expected: readonly number[]): void {
  assert(actual.length === expected.length);
  actual.forEach((value, i) => assertAlmostEquals(value, expected[i]!, 1e-9));
}

const random = new RandomStream(1, "ops");
const numbers = (...shape: number[]) =>
  Array.from({ length: elementCount(shape) }, () => 4 * random.uniform() - 2);

function softmaxOf(values: readonly number[]): number[] {
  const peak = Math.max(...values), all = values.map((x) => Math.exp(x - peak));
  const total = all.reduce((sum, x) => sum + x, 0);
  return all.map((x) => x / total);
}

Deno.test("attention sees the slots from first to last of its own row, scaled by √D", async () => {
  const [T, D] = [4, 2], q = numbers(T, D), k = numbers(T, D), v = numbers(T, D);
  const first = [0, 0, 2, 2], last = [0, 1, 2, 3];
  const expected = last.flatMap((end, t) => {
    const slots = Array.from({ length: end + 1 - first[t]! }, (_, i) => first[t]! + i);
    const dot = (s: number) =>
      (q[t * D]! * k[s * D]! + q[t * D + 1]! * k[s * D + 1]!) / Math.sqrt(D);
    const weights = softmaxOf(slots.map(dot));
    return [0, 1].map((d) => slots.reduce((sum, s, i) => sum + weights[i]! * v[s * D + d]!, 0));
  });
  const rows = [1, T];
  const shapes = {
    ...{ q: [1, T, 1, D], keys: [1, 1, T, D], values: [1, 1, T, D] },
    ...{ first: { i32: rows }, last: { i32: rows } },
  };
  const program = programOf(
    "attention",
    shapes,
    ({ first, last, ...x }) => attention({ ...x, visible: { first, last } }),
  );
  assertClose(await resultOf(program, { q, keys: k, values: v, first, last }), expected);
});

Deno.test("rope turns element i towards i + D/2 by position times frequency, scaled", async () => {
  const [T, D] = [3, 4], x = numbers(T, D), frequencies = [1, 0.5], scale = 1.25;
  const expected = Array.from({ length: T }, (_, t) => {
    const turned = [0, 1].map((i) => {
      const angle = t * frequencies[i]!, a = x[t * D + i]!, b = x[t * D + 2 + i]!;
      return [a * Math.cos(angle) - b * Math.sin(angle), b * Math.cos(angle) + a * Math.sin(angle)];
    });
    return [turned[0]![0]!, turned[1]![0]!, turned[0]![1]!, turned[1]![1]!].map((y) => scale * y);
  }).flat();
  const shapes = { x: [1, T, D], positions: { i32: [1, T] } };
  const program = programOf(
    "rope",
    shapes,
    ({ x, positions }) => rope({ x, ...ropeTables(positions, frequencies, scale) }, { heads: 1 }),
  );
  assertClose(await resultOf(program, { x, positions: [0, 1, 2] }), expected);
});

Deno.test("softmax and log-probabilities of large logits stay finite", async () => {
  const logits = [1000, 1001, 999, -1000, 0, 2];
  const rows = [logits.slice(0, 3), logits.slice(3)];
  const whole = programOf("softmax", { x: [2, 3] }, (x) => softmax(x));
  assertClose(await resultOf(whole, { x: logits }), rows.flatMap(softmaxOf));
  const shapes = { logits: [2, 3], targets: { i32: [2] } };
  const chosen = programOf("logprobs", shapes, (x) => tokenLogprobs(x));
  const actual = await resultOf(chosen, { logits, targets: [2, 1] });
  assertClose(actual, [softmaxOf(rows[0]!)[2]!, softmaxOf(rows[1]!)[1]!].map(Math.log));
});

Deno.test("aggregation weights are a softmax with a floor of ε/P, and sum to 1", async () => {
  const scores = [5, -5, 0, 1], smoothing = 0.1;
  const program = programOf("weights", { scores: [1, 4] }, (x) => streamWeights(x, { smoothing }));
  const actual = await resultOf(program, { scores });
  assertClose(actual, softmaxOf(scores).map((w) => w * 0.9 + 0.1 / 4));
  assertAlmostEquals(actual.reduce((sum, w) => sum + w, 0), 1, 1e-12);
});
