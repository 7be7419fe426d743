/** Memory of every rank for the paper's largest model, which docs/distributed.md prints. */
import { assert, assertEquals } from "@std/assert";
import { parseConfig } from "../../../core/checkpoint/config.ts";
import { ALONE } from "../../../core/collective/collective.ts";
import { sliceOf } from "../../../core/collective/data_parallel.ts";
import { readShape } from "../../../core/checkpoint/shape_source.ts";
import { ReferenceDevice } from "../../../core/runtime/reference/device.ts";
import { trainableSpecs } from "../../../core/train/trainable.ts";
import type { TrainerOptions } from "../../../core/train/trainer.ts";
import { planTraining } from "../../../core/train/training_memory.ts";

const { json, path } = await readShape("paper-4.4b");
const config = parseConfig(json, path);
const device = new ReferenceDevice("f32");

function plan(ranks: number, more: Partial<TrainerOptions> = {}, shards = true) {
  const options: TrainerOptions = {
    config,
    trained: trainableSpecs(config, { params: "all", aggregation: "dynamic" }),
    initial: () => [],
    sizes: { batch: 1, tokens: 8 },
    optimizer: { beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weightDecay: 0.1, clip: 1 },
    accumulates: false,
    recompute: true,
    collective: { ...ALONE, slice: (count) => sliceOf(count, shards ? ranks : 1, 0) },
    ...more,
  };
  const { parameters, gradients, moments } = planTraining(device, options);
  return { parameters, gradients, moments, gb: (parameters + gradients + moments) / 1e9 };
}

Deno.test("moments shrink with the ranks: 8 + 8/N bytes a value, with accumulation too", () => {
  const alone = plan(1), values = alone.parameters / 4;
  assertEquals(Math.round(values / 1e6), 4742);
  for (const [ranks, gb] of [[1, 75.9], [8, 42.7], [64, 38.5]] as const) {
    const sharded = ranks === 1 ? alone : plan(ranks);
    assert(Math.abs(sharded.gb - gb) < 0.06, `${ranks}: ${sharded.gb}`);
    assertEquals(plan(ranks, { accumulates: true }).gb, sharded.gb);
    const replicated = plan(ranks, {}, false);
    assertEquals(replicated.moments, 8 * values, "without sharding every rank keeps all");
  }
});
