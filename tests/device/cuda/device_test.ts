/** Tests of the cuda device alone: bf16 on whatever runs it; memory, graphs and errors emulated. */
import { assert, assertEquals, assertThrows } from "@std/assert";
import { openCheckpoint } from "../../../core/checkpoint/open.ts";
import { Engine } from "../../../core/generate/engine.ts";
import { generate } from "../../../core/generate/generate.ts";
import { GREEDY } from "../../../core/base/sampling.ts";
import { Builder } from "../../../core/graph/builder.ts";
import { differentiate } from "../../../core/graph/differentiate.ts";
import { buildLoss } from "../../../core/model/loss.ts";
import { RandomStream } from "../../../core/base/random.ts";
import { CudaError } from "../../../core/runtime/cuda/driver/errors.ts";
import type { CudaDevice } from "../../../core/runtime/cuda/device.ts";
import { weightValues } from "../../../core/runtime/weights.ts";
import { Trainer, type TrainerOptions } from "../../../core/train/trainer.ts";
import { planTraining } from "../../../core/train/training_memory.ts";
import { trainableSpecs } from "../../../core/train/trainable.ts";
import { emulatedMachine, emulatorPresent } from "../../emulator/mod.ts";
import { machineWith } from "../../emulator/testing.ts";
import { CUDA, openEmulated, openTestCuda, reference } from "../devices.ts";
import { GOLDEN_NAMES, modelFolder, openGolden, readExpected, takesGolden } from "../goldens.ts";
import { OP_CASES, randomInputs } from "../ops/cases.ts";
import { runOn } from "../programs.ts";

const ignore = !emulatorPresent();

/** Half a unit in the last place of bf16 is 2⁻⁹; a few roundings follow each other in an op. */
const BF16_TOLERANCE = 2 ** -6;

Deno.test({
  name: "bf16: every op is within a few roundings of the reference",
  ignore: !CUDA,
  async fn() {
    const device = openTestCuda("bf16");
    for (const one of OP_CASES) {
      const inputs = randomInputs(one);
      const expected = (await runOn(reference, one.program, inputs)).get("result")!;
      const actual = (await runOn(device, one.program, inputs)).get("result")!;
      const scale = Math.max(1, ...Array.from(expected, Math.abs));
      expected.forEach((x, i) => {
        const difference = Math.abs(x - actual[i]!) / scale;
        assert(difference < BF16_TOLERANCE, `${one.name}: relative difference ${difference}`);
      });
    }
    device.close();
  },
});

for (const name of GOLDEN_NAMES) {
  Deno.test({
    name: `bf16: logits and gradients of ${name} stay near those in f32`,
    ignore: !CUDA || !takesGolden(CUDA, name),
    async fn() {
      const ids = (await readExpected(name)).cases.single!.ids[0]!;
      const logits = async (device: CudaDevice) => {
        const engine = await openGolden(name, device);
        const input = { ids: [ids], start: [0], select: [...ids.keys()] };
        const outputs = await engine.forward(engine.createCache(1, ids.length), input);
        return outputs.get("logits")!;
      };
      const gradients = async (device: CudaDevice) => {
        const { config, tensors } = await openCheckpoint(modelFolder(name));
        const loss = buildLoss(config, { batch: 1, tokens: ids.length });
        const program = differentiate(loss, { of: "loss", by: [...loss.parameters.keys()] });
        const T = ids.length;
        const data = new Map<string, number[]>([
          ["ids", ids],
          ["positions", [...ids.keys()]],
          ["targets", [...ids.slice(1), 0]],
          ["predicted", ids.map((_, t) => t < T - 1 ? 1 : 0)],
        ]);
        const executable = await device.compile(program, tensors);
        const bound = new Map(
          [...program.inputs, ...program.outputs].map((
            [key, type],
          ) => [key, device.allocate(type)]),
        );
        for (const [key, values] of data) device.write(bound.get(key)!, values);
        await executable.run(bound);
        return [...program.outputs.keys()].map((key) => device.read(bound.get(key)!));
      };
      const [narrow, wide] = [openTestCuda("bf16"), openTestCuda("f32")];
      assert(distance(await logits(narrow), await logits(wide)) < 0.02);
      const [found, expected] = [await gradients(narrow), await gradients(wide)];
      expected.forEach((values, i) => {
        // The largest is that of a bias of four elements, where terms of both signs nearly cancel.
        if (norm(values) > 1e-6) {
          assert(
            distance(found[i]!, values) < 0.1,
            `output ${i}: ${distance(found[i]!, values)} of ${norm(values)}`,
          );
        }
      });
      narrow.close();
      wide.close();
    },
  });
}

const norm = (x: ArrayLike<number>) => Math.hypot(...Array.from(x));

/** Length of the difference of two vectors, relative to the second. */
function distance(a: ArrayLike<number>, b: ArrayLike<number>): number {
  return norm(Array.from(a, (x, i) => x - b[i]!)) / norm(b);
}

async function trainerOptions(name: string): Promise<TrainerOptions> {
  const { config, tensors } = await openCheckpoint(modelFolder(name));
  return {
    config,
    trained: trainableSpecs(config, { params: "all", aggregation: "dynamic" }),
    initial: (parameter) => weightValues(tensors.get(parameter)!),
    sizes: { batch: 2, tokens: 16 },
    optimizer: { beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weightDecay: 0.1, clip: 1 },
    accumulates: false,
    recompute: false,
  };
}

async function train(device: CudaDevice, options: TrainerOptions, steps: number) {
  const trainer = await Trainer.create(device, options);
  const random = new RandomStream(3, "rows");
  const ids = Array.from({ length: 32 }, () => random.integer(options.config.vocabSize));
  const batch = {
    ids,
    positions: ids.map((_, i) => i % 16),
    targets: ids.map((_, i) => ids[i + 1] ?? 0),
    weights: ids.map((_, i) => i % 16 === 15 ? 0 : 1),
    predicted: 30,
  };
  const losses: number[] = [];
  for (let step = 1; step <= steps; step++) {
    for (let i = 0; i < (options.accumulates ? 2 : 1); i++) await trainer.accumulate(batch);
    losses.push(trainer.sums.loss);
    await trainer.update(step, { backbone: 1e-3, prefix: 1e-3, aggregator: 1e-3 });
  }
  return losses;
}

const MEMORY_RUNS = [
  ["f32", "one micro-batch", false],
  ["bf16", "one micro-batch", false],
  ["f32", "two micro-batches", true],
  ["bf16", "two micro-batches", true],
] as const;

for (const [elements, kind, accumulates] of MEMORY_RUNS) {
  Deno.test({
    name:
      `${elements}, ${kind}: training falls, twice the same bit for bit, in the memory that was planned`,
    ignore,
    async fn() {
      const options = { ...await trainerOptions("qwen2-p2-tied-f32"), accumulates };
      const runs = [];
      for (let run = 0; run < 2; run++) {
        const machine = emulatedMachine();
        const device = openEmulated(elements, machine);
        const before = machine.usedBytes();
        const planned = planTraining(device, options).total;
        runs.push(await train(device, options, 6));
        // Small tensors of their own round up to 256 bytes each; a real model has larger ones.
        const used = machine.usedBytes() - before;
        assert(
          used >= planned * 0.99 && used <= planned * 1.01 + 300 * 256,
          `${used} of ${planned}`,
        );
        device.close();
        assertEquals(machine.usedBytes(), 0);
      }
      const [first, second] = runs as [number[], number[]];
      assertEquals(first, second);
      assert(first.at(-1)! < first[0]! - 1, `${first}`);
    },
  });
}

Deno.test({
  name: "a program that is run again with the same tensors is launched as a graph",
  ignore,
  async fn() {
    let launched = 0;
    const machine = machineWith("cuLaunchKernel", (launch, count) => (launched = count, launch));
    const device = openEmulated("f32", machine);
    const g = new Builder("twice");
    const x = g.input("x", { dtype: "f32", shape: [5] });
    g.output("y", x.mul(x).add(1));
    const program = g.build();
    const executable = await device.compile(program, new Map());
    const tensors = new Map([...program.inputs, ...program.outputs].map(([name, type]) => [
      name,
      device.allocate(type),
    ]));
    const launches: number[] = [];
    for (let run = 0; run < 5; run++) {
      device.write(tensors.get("x")!, [run, 1, 2, 3, 4]);
      await executable.run(tensors);
      assertEquals(Array.from(device.read(tensors.get("y")!)), [run * run + 1, 2, 5, 10, 17]);
      launches.push(launched);
    }
    // Launched, then captured, then only replayed.
    assertEquals(launches, [2, 4, 4, 4, 4]);
    const other = new Map(tensors).set("y", device.allocate(program.outputs.get("y")!));
    await executable.run(other);
    assertEquals([launched, device.read(other.get("y")!)[0]], [6, 17]);
    device.close();
  },
});

Deno.test({
  name: "bf16: generation keeps its cache in bf16 and is the same alone and side by side",
  ignore: !CUDA,
  async fn() {
    const device = openTestCuda("bf16");
    const engine: Engine = await openGolden("qwen2-p2-untied-bf16", device);
    assertEquals([...engine.createCache(1, 8).tensors.values()][0]!.dtype, "bf16");
    const { prompts } = (await readExpected("qwen2-p2-untied-bf16")).greedy;
    const requests = prompts.slice(0, 3).map((tokens) => ({
      tokens,
      maxTokens: 12,
      sampling: GREEDY,
      random: new RandomStream(0),
      eosTokenIds: [],
    }));
    const runs: number[][][] = [];
    for (const batch of [1, 3]) {
      const results: number[][] = requests.map(() => []);
      for await (const event of generate(engine, requests, { batch })) {
        assert(event.kind !== "failed");
        if (event.kind === "token") results[event.index]!.push(event.token);
      }
      runs.push(results);
    }
    assertEquals(runs[0], runs[1]);
    device.close();
  },
});

Deno.test({
  name: "a device that is full says so",
  ignore,
  fn() {
    const device = openEmulated("f32", emulatedMachine({ memoryBytes: 1 << 20 }));
    const allocate = () => device.allocate({ dtype: "f32", shape: [1 << 20] });
    assertThrows(allocate, CudaError, "CUDA_ERROR_OUT_OF_MEMORY");
  },
});
