/** Trainers of golden models, and their golden runs on whatever devices a test names. */
import { assert, assertEquals } from "@std/assert";
import { RandomStream } from "../../../core/base/random.ts";
import { openCheckpoint } from "../../../core/checkpoint/open.ts";
import type { Collective } from "../../../core/collective/collective.ts";
import type { Device } from "../../../core/runtime/device.ts";
import { weightValues } from "../../../core/runtime/weights.ts";
import { trainableSpecs } from "../../../core/train/trainable.ts";
import { Trainer, type TrainerOptions, type TrainingBatch } from "../../../core/train/trainer.ts";
import type { NamedDevice } from "../devices.ts";
import {
  type ExpectedRun,
  GOLDEN_NAMES,
  maxDifference,
  modelFolder,
  readExpected,
  readTensors,
} from "../goldens.ts";

/** Rows of equal length, each one document. */
export function batchOf(rows: readonly number[][]): TrainingBatch {
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

/** Rows of random tokens. */
export function randomRows(seed: number, rows: number, tokens: number, below = 400): number[][] {
  const random = new RandomStream(seed);
  return Array.from(
    { length: rows },
    () => Array.from({ length: tokens }, () => random.integer(below)),
  );
}

/** The optimizer of the golden runs. */
export const OPTIMIZER = { beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weightDecay: 0.1, clip: 1 };

/** Choices of a trainer of a golden model. */
export interface GoldenTrainer {
  readonly mode?: "full" | "peft";
  readonly rows: number;
  readonly tokens: number;
  readonly counted?: number;
  readonly accumulates?: boolean;
  readonly clip?: number;
  readonly collective?: Collective;
}

/** Options of a trainer of a golden model, with the optimizer of its golden runs. */
export async function trainerOptions(
  name: string,
  { mode, rows, tokens, counted, clip = 1, accumulates = false, ...others }: GoldenTrainer,
): Promise<TrainerOptions> {
  const { config, tensors } = await openCheckpoint(modelFolder(name));
  const params = mode === "peft" ? "introduced" : "all";
  return {
    config,
    trained: trainableSpecs(config, { params, aggregation: "dynamic" }),
    initial: (parameter) => weightValues(tensors.get(parameter)!),
    sizes: { batch: rows, tokens, counted },
    optimizer: { ...OPTIMIZER, clip },
    accumulates,
    recompute: false,
    ...others,
  };
}

/** A trainer of a golden model. */
export async function openTrainer(device: Device, name: string, options: GoldenTrainer) {
  return await Trainer.create(device, await trainerOptions(name, options));
}

/** One rate for all groups of parameters. */
export const oneRate = (rate: number) => ({ backbone: rate, prefix: rate, aggregator: rate });

/** Losses of some steps on batches in turn, of which each step takes one some times. */
export async function lossesOf(
  trainer: Trainer,
  batches: readonly TrainingBatch[],
  steps: number,
  times = 1,
): Promise<number[]> {
  const losses: number[] = [];
  for (let step = 1; step <= steps; step++) {
    for (let i = 0; i < times; i++) await trainer.accumulate(batches[step % batches.length]!);
    losses.push(trainer.sums.loss);
    await trainer.update(step, oneRate(1e-3));
  }
  return losses;
}

/** Tolerance of losses of a golden run. */
export const lossTolerance = ({ loss_noise }: ExpectedRun) => Math.max(2e-5, 20 * loss_noise);

/**
 * Tolerance of gradient norms at a step: a run that rounding alone changes much, as its own noise shows, is
 * compared in its first steps.
 */
function normTolerance({ loss_noise }: ExpectedRun, step: number): number {
  if (loss_noise < 1e-3) return 1e-3;
  return step <= 4 ? 2e-3 : Infinity;
}

/** Takes the step that a trainer has accumulated for, and compares it with that of the golden run. */
export async function assertStep(trainer: Trainer, run: ExpectedRun, i: number): Promise<void> {
  const expected = run.steps[i]!;
  const loss = trainer.sums.loss / trainer.sums.predicted;
  const { gradNorm, clipScale } = await trainer.update(i + 1, oneRate(run.lr));
  const at = `step ${i + 1}`;
  assert(Math.abs(loss - expected.loss) < lossTolerance(run), `${at}: loss ${loss}`);
  const tolerance = normTolerance(run, i + 1);
  assert(Math.abs(gradNorm / expected.grad_norm - 1) < tolerance, `${at}: ${gradNorm}`);
  assert(Math.abs(clipScale - expected.clip_scale) < tolerance, `${at}: ${clipScale}`);
}

/** Repeats every golden run on the devices for which `takes` holds: losses, gradient norms, weights. */
export function testGoldenRuns(
  devices: readonly NamedDevice[],
  takes: (device: string, model: string, run: string) => boolean,
): void {
  for (const name of GOLDEN_NAMES) {
    const { train } = readExpected(name);
    for (const run of train ?? []) {
      for (const { name: deviceName, device } of devices) {
        if (!takes(deviceName, name, run.run)) continue;
        Deno.test(`${deviceName}: ${name} ${run.mode} ${run.run} run follows the golden`, async () => {
          const [rows, tokens] = [run.batches[0]!.length, run.batches[0]![0]!.length];
          const trainer = await openTrainer(device, name, { mode: run.mode, rows, tokens });
          let batch = batchOf(run.batches[0]!);
          for (const i of run.steps.keys()) {
            if (run.repeat === 1) batch = batchOf(run.batches[i]!);
            await trainer.accumulate(batch);
            await assertStep(trainer, run, i);
          }
          const after = await trainer.evaluate(batch);
          assert(Math.abs(after.loss / after.predicted - run.loss_after) < lossTolerance(run));
          const decayed = trainer.groups.filter(({ group }) => group.decayed);
          assertEquals(
            decayed.flatMap(({ group }) => group.tensors.map((tensor) => tensor.name)).sort(),
            run.decayed.toSorted(),
          );
          for (const [parameter, expected] of Object.entries(run.final_l2)) {
            const norm = Math.hypot(...Array.from(trainer.values(parameter)));
            const tolerance = Math.max(1e-4, run.final_param_noise);
            assert(Math.abs(norm / expected - 1) < tolerance, `${parameter}: ${norm}`);
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
}
