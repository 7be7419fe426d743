/** The golden training runs, gradient accumulation and clipping on every device. */
import { assert, assertEquals, assertRejects } from "@std/assert";
import { NumericalError } from "../../../core/base/errors.ts";
import { devices } from "../devices.ts";
import { maxDifference, takesGolden } from "../goldens.ts";
import { batchOf, oneRate, openTrainer, randomRows, testGoldenRuns } from "./golden_runs.ts";

/** Runs that repeat one batch are slow, and so is all of training where a loop in JavaScript computes. */
await testGoldenRuns(devices, (device, model, run) => {
  if (device.startsWith("cpu")) return true;
  if (run === "same_batch" || !takesGolden(device, model)) return false;
  return device.startsWith("cuda") || model === "qwen2-p4-untied-f32";
});

const P2 = "qwen2-p2-tied-f32";
const UNTIED = "qwen2-p2-untied-bf16";

for (const { name: deviceName, device } of devices) {
  Deno.test(`${deviceName}: micro-batches equal the large batch`, async () => {
    const T = 12; // more rows than the kernels of a few rows take, so that both sum in one order
    const rows = randomRows(3, 4, T);
    const whole = batchOf(rows);
    // Unequal numbers of predicted tokens: a mean of means would differ.
    const weights = Array.from(whole.weights, (weight, i) => i < 2 * T - 2 ? 0 : weight);
    const sum = (values: readonly number[]) => values.reduce((total, value) => total + value);
    const large = await openTrainer(device, P2, { rows: 4, tokens: T, clip: Infinity });
    const alone = { rows: 1, tokens: T, clip: Infinity, accumulates: true };
    const small = await openTrainer(device, P2, alone);
    await large.accumulate({ ...whole, weights, predicted: sum(weights) });
    for (let row = 0; row < 4; row++) {
      const own = weights.slice(row * T, (row + 1) * T);
      await small.accumulate({ ...batchOf([rows[row]!]), weights: own, predicted: sum(own) });
    }
    assert(Math.abs(large.sums.loss / small.sums.loss - 1) < 1e-6);
    large.groups.forEach(({ gradients }, i) => {
      const [a, b] = [device.read(gradients), device.read(small.groups[i]!.gradients)];
      const scale = Math.max(...Array.from(a, Math.abs));
      assert(maxDifference(a, b) / scale < 1e-6, `group ${i}`);
    });
    const { gradNorm } = await large.update(1, oneRate(0.01));
    assert(Math.abs(gradNorm / (await small.update(1, oneRate(0.01))).gradNorm - 1) < 1e-6);
  });

  for (const name of [P2, UNTIED]) {
    Deno.test(`${deviceName}: ${name} adds the gradients of micro-batches up, one after the other`, async () => {
      const batches = randomRows(4, 3, 8, 20).map((row) => batchOf([row]));
      const single = await openTrainer(device, name, { rows: 1, tokens: 8 });
      const several = await openTrainer(device, name, { rows: 1, tokens: 8, accumulates: true });
      const sums: Float32Array[] = [];
      await several.accumulate(batches[2]!); // a step before, whose gradients must not remain
      await several.update(1, oneRate(0));
      for (const batch of batches) {
        await several.accumulate(batch);
        await single.accumulate(batch);
        single.groups.forEach(({ gradients }, i) => {
          const own = device.read(gradients);
          sums[i] = Float32Array.from(own, (x, at) => x + (sums[i]?.[at] ?? 0));
        });
        await single.update(1, oneRate(0));
      }
      several.groups.forEach(({ gradients }, i) => {
        assertEquals(maxDifference(device.read(gradients), sums[i]!), 0, `group ${i}`);
      });
    });
  }

  Deno.test(`${deviceName}: a loss that is not finite changes nothing`, async () => {
    const trainer = await openTrainer(device, P2, { rows: 1, tokens: 8 });
    const before = trainer.groups.map(({ values }) => device.read(values).slice());
    const batch = batchOf([[1, 2, 3, 4, 5, 6, 7, 8]]);
    const weights = Array.from(batch.weights, (weight, i) => i === 3 ? NaN : weight);
    await trainer.accumulate({ ...batch, weights });
    await assertRejects(
      () => trainer.update(1, oneRate(0.1)),
      NumericalError,
      "training diverged at step 1: loss is NaN",
    );
    trainer.groups.forEach(({ values }, i) => assertEquals(device.read(values), before[i]));
  });

  Deno.test(`${deviceName}: groups of parameters have rates of their own`, async () => {
    const trainer = await openTrainer(device, P2, { rows: 1, tokens: 8 });
    const before = trainer.groups.map(({ values }) => device.read(values).slice());
    await trainer.accumulate(batchOf([[1, 2, 3, 4, 5, 6, 7, 8]]));
    await trainer.update(1, { backbone: 0, prefix: 0.5, aggregator: 0 });
    trainer.groups.forEach(({ group, values }, i) => {
      const moved = maxDifference(device.read(values), before[i]!);
      if (group.rate === "prefix") assert(moved > 0.4, `${moved}`);
      else assertEquals(moved, 0, group.rate);
    });
  });
}
