/** Updates of AdamW against its formulas, in double precision. */
import { assertAlmostEquals, assertEquals } from "@std/assert";
import { ALONE } from "../../../core/collective/collective.ts";
import { ReferenceDevice } from "../../../core/runtime/reference/device.ts";
import { Optimizer, type OptimizerOptions } from "../../../core/train/optimizer.ts";

const OPTIONS = { beta1: 0.9, beta2: 0.95, epsilon: 1e-3, weightDecay: 0.1, clip: 1 };
const RATES = { backbone: 0.01, prefix: 0.02, aggregator: 0.04 };
const START = [1, -2, 3], TOKENS = 4;

/** Sums of gradients of two steps, the first of which is clipped. */
const GRADIENTS = [[8, 4, -8], [0.4, -0.8, 0.8]] as const;

/** Values after two steps of the formulas, and what the steps report. */
function expected(
  { beta1, beta2, epsilon, weightDecay, clip }: OptimizerOptions,
  decayed: boolean,
) {
  const rate = RATES.prefix;
  const values = [...START], m = [0, 0, 0], v = [0, 0, 0];
  const updates = GRADIENTS.map((sums, i) => {
    const t = i + 1, means = sums.map((sum) => sum / TOKENS);
    const gradNorm = Math.hypot(...means);
    const clipScale = Math.min(1, clip / (gradNorm + 1e-6));
    means.forEach((mean, k) => {
      const g = mean * clipScale;
      m[k] = beta1 * m[k]! + (1 - beta1) * g;
      v[k] = beta2 * v[k]! + (1 - beta2) * g * g;
      const step = m[k]! / (1 - beta1 ** t) / (Math.sqrt(v[k]! / (1 - beta2 ** t)) + epsilon);
      values[k] = values[k]! * (decayed ? 1 - rate * weightDecay : 1) - rate * step;
    });
    return { gradNorm, clipScale };
  });
  return { values, updates };
}

/** An optimizer of one group of three elements of the rate `prefix`. */
async function open(decayed: boolean) {
  const device = new ReferenceDevice();
  const zeros = () => device.allocate({ dtype: "f32", shape: [START.length] });
  const arrays = { values: zeros(), gradients: zeros(), m: zeros(), v: zeros() };
  device.write(arrays.values, START);
  const group = { rate: "prefix", decayed, tensors: [], count: START.length } as const;
  const slice = ALONE.slice(START.length);
  const groups = [{ group, slice, ...arrays }];
  return { device, arrays, optimizer: await Optimizer.create(device, groups, OPTIONS, ALONE) };
}

for (const decayed of [true, false]) {
  Deno.test(`two steps ${decayed ? "with" : "without"} weight decay follow the formulas`, async () => {
    const { device, arrays, optimizer } = await open(decayed);
    const { values, updates } = expected(OPTIONS, decayed);
    for (const [i, sums] of GRADIENTS.entries()) {
      device.write(arrays.gradients, sums);
      const update = await optimizer.step(i + 1, TOKENS, RATES);
      assertAlmostEquals(update.gradNorm, updates[i]!.gradNorm, 1e-12);
      assertAlmostEquals(update.clipScale, updates[i]!.clipScale, 1e-12);
    }
    assertEquals(updates.map(({ clipScale }) => clipScale < 1), [true, false]);
    values.forEach((value, k) => assertAlmostEquals(arrays.values.data[k]!, value, 1e-12));
  });
}

Deno.test("a gradient that is not finite changes nothing", async () => {
  const { device, arrays, optimizer } = await open(true);
  device.write(arrays.gradients, [1, NaN, 1]);
  assertEquals((await optimizer.step(1, TOKENS, RATES)).gradNorm, NaN);
  assertEquals([...arrays.values.data, ...arrays.m.data], [...START, 0, 0, 0]);
});
