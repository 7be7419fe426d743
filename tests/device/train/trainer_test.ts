/** The golden training runs, gradient accumulation and clipping on every device. */
import { assert, assertEquals, assertRejects } from "@std/assert";
import { devices } from "../devices.ts";
import { maxDifference, takesGolden } from "../goldens.ts";
import {
  batchOf,
  lossesOf,
  oneRate,
  openTrainer,
  randomRows,
  testGoldenRuns,
} from "./golden_runs.ts";

/** Runs that repeat one batch are slow; those of devices in JavaScript are in tests/long. */
testGoldenRuns(devices, (device, model, run) => {
  if (device.startsWith("cpu")) return takesGolden(device, model);
  return device.startsWith("cuda") && run !== "same_batch" && takesGolden(device, model);
});

const P2 = "qwen2-p2-tied-f32";
const UNTIED = "qwen2-p2-untied-bf16";

for (const { name: deviceName, device } of devices) {
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
}

for (const { name: deviceName, device } of devices) {
  Deno.test(`${deviceName}: a run whose batches count few tokens is the same with room for those alone`, async () => {
    const batches = [5, 6].map((seed) => batchOf(randomRows(seed, 2, 8))).map((batch, i) => {
      const weights = Array.from(batch.weights, (weight, slot) => slot % 3 === i ? weight : 0);
      return { ...batch, weights, predicted: weights.filter((weight) => weight > 0).length };
    });
    const [wide, narrow] = await Promise.all(
      [16, 6].map((counted) => openTrainer(device, P2, { rows: 2, tokens: 8, counted })),
    );
    const [whole, few] = [await lossesOf(wide!, batches, 4), await lossesOf(narrow!, batches, 4)];
    whole.forEach((loss, i) => assert(Math.abs(few[i]! / loss - 1) < 1e-6, `step ${i + 1}`));
    const sums = await Promise.all([wide!, narrow!].map((each) => each.evaluate(batches[0]!)));
    assert(Math.abs(sums[0]!.streamWeights[1]! / sums[1]!.streamWeights[1]! - 1) < 1e-5);
    const full = batchOf(randomRows(7, 2, 8));
    await assertRejects(() => narrow!.accumulate(full), TypeError, "14 slots count, of 6");
  });
}
