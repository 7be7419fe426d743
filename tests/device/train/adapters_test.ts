/** Trained adapters on disk over one loaded backbone: what a switch of streams loads, and what not. */
import { assert, assertEquals } from "@std/assert";
import { convert } from "../../../core/checkpoint/convert.ts";
import { type Checkpoint, openCheckpoint } from "../../../core/checkpoint/open.ts";
import { planConversion } from "../../../core/checkpoint/plan_conversion.ts";
import { Engine } from "../../../core/generate/engine.ts";
import { parameterSpecs } from "../../../core/model/parameters.ts";
import type { HostArray } from "../../../core/runtime/device.ts";
import { CpuDevice } from "../../../core/runtime/onnxruntime/cpu.ts";
import { openModelSource } from "../../../core/train/model_source.ts";
import { saveModel } from "../../../core/train/save_model.ts";
import { Trainer } from "../../../core/train/trainer.ts";
import { withScratch } from "../../scratch.ts";
import { logitsOf } from "../engines.ts";
import { maxDifference, modelFolder } from "../goldens.ts";
import { batchOf, OPTIMIZER } from "./golden_runs.ts";

const BACKBONE = modelFolder("qwen2-p1-tied-f32");
const IDS = [5, 9, 12, 7];

/** Trains an adapter for a few steps and saves it, as `train --train-params introduced` does. */
async function trainAdapter(device: CpuDevice, streams: number, folder: string): Promise<void> {
  const source = await openModelSource({
    model: BACKBONE,
    initStd: 0.02,
    streams,
    prefixTokens: 4,
    aggregation: "dynamic",
    params: "introduced",
    reparameterize: 0,
    seed: streams,
  });
  const { config, trained, initial } = source;
  const trainer = await Trainer.create(device, {
    ...{ config, trained, initial, sizes: { batch: 1, tokens: 4 } },
    ...{ optimizer: OPTIMIZER, accumulates: false, recompute: false },
  });
  for (let step = 1; step <= 3; step++) {
    await trainer.accumulate(batchOf([IDS]));
    await trainer.update(step, { backbone: 0, prefix: 0.3, aggregator: 0.1 });
  }
  await Deno.mkdir(folder);
  await saveModel(folder, source, trainer, { introducedOnly: true, reparameterize: 0 });
}

const lastLogits = (engine: Engine) => logitsOf(engine, [IDS], [3]);

/** The tensors of an opened adapter without those of its backbone. */
function introducedOf({ config, tensors }: Checkpoint) {
  const specs = parameterSpecs(config).filter(({ introduced }) => introduced);
  return new Map(specs.map(({ name }) => [name, tensors.get(name)!]));
}

Deno.test("adapters of 2 and 4 streams switch on a backbone that is loaded once", () =>
  withScratch(async (scratch) => {
    const training = new CpuDevice({ threads: 1 });
    await trainAdapter(training, 2, `${scratch}/two`);
    await trainAdapter(training, 4, `${scratch}/four`);
    training.close();
    const two = await openCheckpoint(BACKBONE, { adapter: `${scratch}/two` });
    const four = await openCheckpoint(BACKBONE, { adapter: `${scratch}/four` });
    assertEquals([two.config.streams, four.config.streams], [2, 4]);

    // Backbone and adapter in one map are a model of their own: each is loaded as a whole.
    const merged = new CpuDevice({ threads: 1 });
    const expected: HostArray[] = [];
    for (const { config, tensors } of [two, four]) {
      expected.push(await lastLogits(new Engine(merged, config, tensors)));
    }
    assertEquals(merged.sessionCount, 2);
    merged.close();
    assert(maxDifference(expected[0]!, expected[1]!) > 1e-2, "the adapters must differ");

    const device = new CpuDevice({ threads: 1 });
    const { tensors } = await openCheckpoint(BACKBONE);
    const first = new Engine(device, two.config, tensors, { adapter: introducedOf(two) });
    const second = first.withAdapter(four.config, introducedOf(four));
    // Back and forth, so that nothing of one adapter may stay behind in the other.
    for (const [engine, logits] of [[first, 0], [second, 1], [first, 0], [second, 1]] as const) {
      assert(maxDifference(await lastLogits(engine), expected[logits]!) < 1e-5);
    }
    assertEquals(device.sessionCount, 1, "one copy of the backbone");
    device.close();
  }));

Deno.test("an adapter by conversion and one by training have the same layout", () =>
  withScratch(async (scratch) => {
    const plan = await planConversion({
      model: BACKBONE,
      out: `${scratch}/converted`,
      streams: 2,
      prefixTokens: 4,
      introducedOnly: true,
      seed: 2,
    });
    await convert(plan);
    const device = new CpuDevice({ threads: 1 });
    await trainAdapter(device, 2, `${scratch}/trained`);
    device.close();
    const converted = await openCheckpoint(BACKBONE, { adapter: `${scratch}/converted` });
    const trained = await openCheckpoint(BACKBONE, { adapter: `${scratch}/trained` });
    assertEquals([...trained.tensors.keys()], [...converted.tensors.keys()]);
    assertEquals(trained.adapter!.backboneSha256, converted.adapter!.backboneSha256);
    assertEquals({ ...trained.config, smoothing: 0 }, { ...converted.config, smoothing: 0 });
  }));
