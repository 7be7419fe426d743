/** Model ops on the reference device against plain loops that are written here a second time. */
import { assert, assertAlmostEquals } from "@std/assert";
import { RandomStream } from "../../../core/base/random.ts";
import { Builder } from "../../../core/graph/builder.ts";
import { elementCount, type TensorType } from "../../../core/graph/types.ts";
import type { Value } from "../../../core/graph/value.ts";
import { streamWeights } from "../../../core/ops/aggregate.ts";
import { attention } from "../../../core/ops/attention.ts";
import { rope, ropeTables } from "../../../core/ops/rope.ts";
import { softmax } from "../../../core/ops/softmax.ts";
import { tokenLogprobs } from "../../../core/ops/token_logprobs.ts";
import { ReferenceDevice } from "../../../core/runtime/reference/device.ts";

type Inputs = Readonly<
  Record<string, readonly [shape: number[], values: readonly number[], "i32"?]>
>;

/** The result of a program over these inputs. */
async function compute(
  inputs: Inputs,
  build: (inputs: Readonly<Record<string, Value>>) => Value,
): Promise<number[]> {
  const device = new ReferenceDevice(), g = new Builder("test"), bindings = new Map();
  const declared = Object.entries(inputs).map(([name, [shape, values, dtype]]) => {
    const type: TensorType = { dtype: dtype ?? "f32", shape };
    const tensor = device.allocate(type);
    device.write(tensor, values);
    bindings.set(name, tensor);
    return [name, g.input(name, type)] as const;
  });
  const result = build(Object.fromEntries(declared));
  g.output("result", result);
  const output = device.allocate(result);
  bindings.set("result", output);
  const program = await device.compile(g.build(), new Map());
  await program.run(bindings);
  return [...device.read(output)];
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
  const inputs: Inputs = {
    q: [[1, T, 1, D], q],
    keys: [[1, 1, T, D], k],
    values: [[1, 1, T, D], v],
    first: [[1, T], first, "i32"],
    last: [[1, T], last, "i32"],
  };
  const actual = await compute(
    inputs,
    ({ q, keys, values, first, last }) =>
      attention({ q: q!, keys: keys!, values: values!, visible: { first: first!, last: last! } }),
  );
  assertClose(actual, expected);
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
  const inputs: Inputs = { x: [[1, T, D], x], positions: [[1, T], [0, 1, 2], "i32"] };
  const actual = await compute(
    inputs,
    ({ x, positions }) =>
      rope({ x: x!, ...ropeTables(positions!, frequencies, scale) }, { heads: 1 }),
  );
  assertClose(actual, expected);
});

Deno.test("softmax and log-probabilities of large logits stay finite", async () => {
  const logits = [1000, 1001, 999, -1000, 0, 2];
  const rows = [logits.slice(0, 3), logits.slice(3)];
  const x: Inputs = { x: [[2, 3], logits] };
  assertClose(await compute(x, ({ x }) => softmax({ x: x! })), rows.flatMap(softmaxOf));
  const actual = await compute(
    { ...x, targets: [[2], [2, 1], "i32"] },
    ({ x, targets }) => tokenLogprobs({ logits: x!, targets: targets! }),
  );
  assertClose(actual, [softmaxOf(rows[0]!)[2]!, softmaxOf(rows[1]!)[1]!].map(Math.log));
});

Deno.test("aggregation weights are a softmax with a floor of ε/P, and sum to 1", async () => {
  const scores = [5, -5, 0, 1], smoothing = 0.1;
  const actual = await compute(
    { scores: [[1, 4], scores] },
    ({ scores }) => streamWeights({ scores: scores! }, { smoothing }),
  );
  assertClose(actual, softmaxOf(scores).map((w) => w * 0.9 + 0.1 / 4));
  assertAlmostEquals(actual.reduce((sum, w) => sum + w, 0), 1, 1e-12);
});
