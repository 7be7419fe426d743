/** The golden training runs, gradient accumulation and clipping on every device. */
import { assertEquals } from "@std/assert";
import { devices } from "../devices.ts";
import { maxDifference, takesGolden } from "../goldens.ts";
import { batchOf, oneRate, openTrainer, randomRows, testGoldenRuns } from "./golden_runs.ts";

/** Runs that repeat one batch are slow; those of devices in JavaScript are in tests/long. */
await testGoldenRuns(devices, (device, model, run) => {
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
