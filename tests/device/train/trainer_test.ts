/** The golden training runs, gradient accumulation and clipping on every device. */
import { assert, assertEquals, assertRejects } from "@std/assert";
import { openCheckpoint } from "../../../core/checkpoint/open.ts";
import { NumericalError } from "../../../core/base/errors.ts";
import { RandomStream } from "../../../core/base/random.ts";
import type { Device } from "../../../core/runtime/device.ts";
import { weightValues } from "../../../core/runtime/weights.ts";
import { trainableSpecs } from "../../../core/train/trainable.ts";
import { Trainer, type TrainingBatch } from "../../../core/train/trainer.ts";
import { devices } from "../devices.ts";
import {
  GOLDEN_NAMES,
  maxDifference,
  modelFolder,
  readExpected,
  readTensors,
  takesGolden,
} from "../goldens.ts";

/** Rows of equal length, each one document. */
function batchOf(rows: readonly number[][]): TrainingBatch {
  const last = (row: readonly number[], t: number) => t === row.length - 1;
  const weights = rows.flatMap((row) => row.map((_, t) => last(row, t) ? 0 : 1));
  return {
    ids: rows.flat(),
    positions: rows.flatMap((row) => row.map((_, t) => t)),
    targets: rows.flatMap((row) => row.map((_, t) => row[t + 1] ?? 0)),
    weights,
    predicted: weights.filter((weight) => weight > 0).length,
  };
}

interface Options {
  readonly mode?: "full" | "peft";
  readonly rows: number;
  readonly tokens: number;
  readonly accumulates?: boolean;
  readonly clip?: number;
}

async function openTrainer(device: Device, name: string, options: Options): Promise<Trainer> {
  const { config, tensors } = await openCheckpoint(modelFolder(name));
  const params = options.mode === "peft" ? "introduced" : "all";
  return await Trainer.create(device, {
    config,
    trained: trainableSpecs(config, { params, aggregation: "dynamic" }),
    initial: (parameter) => weightValues(tensors.get(parameter)!),
    sizes: { batch: options.rows, tokens: options.tokens },
    optimizer: {
      beta1: 0.9,
      beta2: 0.95,
      epsilon: 1e-8,
      weightDecay: 0.1,
      clip: options.clip ?? 1,
    },
    accumulates: options.accumulates ?? false,
    recompute: false,
  });
}

const oneRate = (rate: number) => ({ backbone: rate, prefix: rate, aggregator: rate });

for (const name of GOLDEN_NAMES) {
  const { train } = await readExpected(name);
  for (const run of train ?? []) {
    for (const { name: deviceName, device } of devices) {
      if (!deviceName.startsWith("cpu") && run.run === "same_batch") continue; // slow
      if (!takesGolden(deviceName, name)) continue;
      if (deviceName.startsWith("tfjs") && !name.includes("p4")) continue; // slow too
      Deno.test(`${deviceName}: ${name} ${run.mode} ${run.run} run follows the golden`, async () => {
        const [rows, tokens] = [run.batches[0]!.length, run.batches[0]![0]!.length];
        const trainer = await openTrainer(device, name, { mode: run.mode, rows, tokens });
        const tolerance = Math.max(2e-5, 20 * run.loss_noise);
        let batch = batchOf(run.batches[0]!);
        for (const [i, expected] of run.steps.entries()) {
          if (run.repeat === 1) batch = batchOf(run.batches[i]!);
          await trainer.accumulate(batch);
          const loss = trainer.sums.loss / trainer.sums.predicted;
          const { gradNorm, clipScale } = await trainer.update(i + 1, oneRate(run.lr));
          assert(Math.abs(loss - expected.loss) < tolerance, `step ${i + 1}: loss ${loss}`);
          assert(Math.abs(gradNorm / expected.grad_norm - 1) < 1e-3, `step ${i + 1}: ${gradNorm}`);
          assert(Math.abs(clipScale - expected.clip_scale) < 1e-3, `step ${i + 1}: ${clipScale}`);
        }
        const after = await trainer.evaluate(batch);
        assert(Math.abs(after.loss / after.predicted - run.loss_after) < tolerance);
        const decayed = trainer.groups.filter(({ group }) => group.decayed);
        assertEquals(
          decayed.flatMap(({ group }) => group.tensors.map((tensor) => tensor.name)).sort(),
          run.decayed.toSorted(),
        );
        for (const [parameter, expected] of Object.entries(run.final_l2)) {
          const norm = Math.hypot(...Array.from(trainer.values(parameter)));
          assert(Math.abs(norm / expected - 1) < 1e-4, `${parameter}: ${norm}`);
        }
        if (!run.final_file) return;
        const final = await readTensors(name, run.final_file.replace(".safetensors", ""));
        const bound = Math.max(2e-5, 20 * run.final_param_noise);
        for (const [parameter, expected] of final) {
          const error = maxDifference(trainer.values(parameter), expected);
          assert(error <= bound, `${parameter}: ${error}`);
        }
      });
    }
  }
}

const P2 = "qwen2-p2-tied-f32";
const UNTIED = "qwen2-p2-untied-bf16";

for (const { name: deviceName, device } of devices) {
  Deno.test(`${deviceName}: micro-batches equal the large batch`, async () => {
    const random = new RandomStream(3);
    const rows = Array.from(
      { length: 4 },
      () => Array.from({ length: 8 }, () => random.integer(400)),
    );
    const whole = batchOf(rows);
    // Unequal numbers of predicted tokens: a mean of means would differ.
    const weights = Array.from(whole.weights, (weight, i) => i < 14 ? 0 : weight);
    const predicted = weights.reduce((total, weight) => total + weight);
    const large = await openTrainer(device, P2, { rows: 4, tokens: 8, clip: Infinity });
    const small = await openTrainer(device, P2, {
      rows: 1,
      tokens: 8,
      clip: Infinity,
      accumulates: true,
    });
    await large.accumulate({ ...whole, weights, predicted });
    for (let row = 0; row < 4; row++) {
      const part = <T>(x: ArrayLike<T>) => Array.from(x).slice(row * 8, (row + 1) * 8);
      const own = part(weights);
      await small.accumulate({
        ids: part(whole.ids),
        positions: part(whole.positions),
        targets: part(whole.targets),
        weights: own,
        predicted: own.reduce((total, weight) => total + weight),
      });
    }
    assert(Math.abs(large.sums.loss / small.sums.loss - 1) < 1e-6);
    large.groups.forEach(({ gradients }, i) => {
      const [a, b] = [device.read(gradients), device.read(small.groups[i]!.gradients)];
      const scale = Math.max(...Array.from(a, Math.abs));
      assert(maxDifference(a, b) / scale < 1e-6, `group ${i}`);
    });
    const [one, other] = [
      await large.update(1, oneRate(0.01)),
      await small.update(1, oneRate(0.01)),
    ];
    assert(Math.abs(one.gradNorm / other.gradNorm - 1) < 1e-6);
  });

  for (const name of [P2, UNTIED]) {
    Deno.test(`${deviceName}: ${name} adds the gradients of micro-batches up, one after the other`, async () => {
      const random = new RandomStream(4);
      const batches = Array.from(
        { length: 3 },
        () => batchOf([Array.from({ length: 8 }, () => random.integer(20))]),
      );
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
