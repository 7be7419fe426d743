/** Tests of the cuda device alone: bf16 on whatever runs it; memory, graphs and errors emulated. */
import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { UsageError } from "../../../core/base/errors.ts";
import { openCheckpoint } from "../../../core/checkpoint/open.ts";
import { Engine } from "../../../core/generate/engine.ts";
import { differentiate } from "../../../core/graph/differentiate.ts";
import { buildLoss } from "../../../core/model/loss.ts";
import { linear } from "../../../core/ops/linear.ts";
import type { CudaDevice } from "../../../core/runtime/cuda/device.ts";
import { Trainer } from "../../../core/train/trainer.ts";
import { planTraining } from "../../../core/train/training_memory.ts";
import { emulatedMachine, emulatorPresent } from "../../emulator/mod.ts";
import { machineWith } from "../../emulator/testing.ts";
import { CUDA, openEmulated, openTestCuda, reference, testIf } from "../devices.ts";
import { logitsOf, request, tokensOf } from "../engines.ts";
import {
  distance,
  GOLDEN_NAMES,
  modelFolder,
  openGolden,
  readExpected,
  relativeDifference,
  takesGolden,
} from "../goldens.ts";
import { OP_CASES, randomInputs } from "../ops/cases.ts";
import { programOf, runOn } from "../programs.ts";
import { batchOf, lossesOf, randomRows, trainerOptions } from "../train/golden_runs.ts";

const test = testIf(emulatorPresent());
const MODEL = "qwen2-p2-tied-f32";

/** Half a unit in the last place of bf16 is 2⁻⁹; a few roundings follow each other in an op. */
const BF16_TOLERANCE = 2 ** -6;

testIf(CUDA)("bf16: every op is within a few roundings of the reference", async () => {
  const device = openTestCuda("bf16");
  for (const one of OP_CASES) {
    if (one.op.endsWith("gated_delta")) continue; // refused, see below
    const inputs = randomInputs(one);
    const expected = (await runOn(reference, one.program, inputs)).get("result")!;
    const actual = (await runOn(device, one.program, inputs)).get("result")!;
    const difference = relativeDifference(actual, expected);
    assert(difference < BF16_TOLERANCE, `${one.name}: relative difference ${difference}`);
  }
  device.close();
});

testIf(CUDA)("bf16: a model with delta nets is refused, and how it runs is said", async () => {
  const device = openTestCuda("bf16");
  const engine = await openGolden("qwen35-p4-untied-f32", device);
  const error = await assertRejects(() => logitsOf(engine, [[1, 2, 3]]), UsageError);
  assertStringIncludes(error.message, "computes a model with delta nets in f32 alone");
  assertEquals(error.hints, ["pass --dtype f32"]);
  device.close();
});

for (const name of GOLDEN_NAMES.filter((name) => !name.startsWith("qwen35"))) {
  const test = testIf(CUDA && takesGolden(CUDA, name));
  test(`bf16: logits and gradients of ${name} stay near those in f32`, async () => {
    const ids = readExpected(name).cases.single!.ids[0]!;
    const { config, tensors } = await openCheckpoint(modelFolder(name));
    const logits = async (device: CudaDevice) =>
      await logitsOf(new Engine(device, config, tensors), [ids]);
    const loss = buildLoss(config, { batch: 1, tokens: ids.length });
    const program = differentiate(loss, { of: "loss", by: [...loss.parameters.keys()] });
    const { positions, targets, weights } = batchOf([ids]);
    const data = { ids, positions, targets, predicted: weights };
    const gradients = async (device: CudaDevice) => {
      const found = await runOn(device, program, data, tensors);
      return [...program.outputs.keys()].map((key) => found.get(key)!);
    };
    const [narrow, wide] = [openTestCuda("bf16"), openTestCuda("f32")];
    assert(distance(await logits(narrow), await logits(wide)) < 0.02);
    const [found, expected] = [await gradients(narrow), await gradients(wide)];
    expected.forEach((values, i) => {
      // The largest is that of a bias of four elements, where terms of both signs nearly cancel.
      const [apart, size] = [distance(found[i]!, values), Math.hypot(...Array.from(values))];
      assert(size <= 1e-6 || apart < 0.1, `output ${i}: ${apart} of ${size}`);
    });
    narrow.close();
    wide.close();
  });
}

const MEMORY_RUNS = [
  ["f32", "one micro-batch", false],
  ["bf16", "one micro-batch", false],
  ["f32", "two micro-batches", true],
  ["bf16", "two micro-batches", true],
] as const;

for (const [elements, kind, accumulates] of MEMORY_RUNS) {
  test(`${elements}, ${kind}: training falls, twice the same bit for bit, in the memory that was planned`, async () => {
    const options = await trainerOptions(MODEL, { rows: 2, tokens: 16, accumulates });
    const batch = batchOf(randomRows(3, 2, 16));
    const runs = [];
    for (let run = 0; run < 2; run++) {
      const machine = emulatedMachine();
      const device = openEmulated(elements, machine);
      const before = machine.usedBytes();
      const planned = planTraining(device, options).total;
      const trainer = await Trainer.create(device, options);
      runs.push(await lossesOf(trainer, [batch], 6, accumulates ? 2 : 1));
      // Small tensors of their own round up to 256 bytes each; a real model has larger ones.
      const used = machine.usedBytes() - before;
      const most = planned * 1.01 + 300 * 256;
      assert(used >= planned * 0.99 && used <= most, `${used} of ${planned}`);
      device.close();
      assertEquals(machine.usedBytes(), 0);
    }
    const [first, second] = runs as [number[], number[]];
    assertEquals(first, second);
    assert(first.at(-1)! < first[0]! - 1, `${first}`);
  });
}

test("a program that is run again with the same tensors is launched as a graph", async () => {
  let launched = 0;
  const machine = machineWith("cuLaunchKernel", (launch, count) => (launched = count, launch));
  const device = openEmulated("f32", machine);
  const program = programOf("twice", { x: [5] }, ({ x }) => ({ y: x.mul(x).add(1) }));
  const executable = await device.compile(program, new Map());
  const types = [...program.inputs, ...program.outputs];
  const tensors = new Map(types.map(([name, type]) => [name, device.allocate(type)]));
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
});

test("numbers that change after they were written are not what the device holds", () => {
  const device = openEmulated();
  for (const length of [2 ** 14, 2 ** 14 + 1]) { // the driver stages 64 KiB
    const values = new Float32Array(length).fill(1);
    const tensor = device.allocate({ dtype: "f32", shape: [length] });
    device.write(tensor, values);
    values.fill(2);
    assertEquals(device.read(tensor), new Float32Array(length).fill(1));
  }
  device.close();
});

test("two devices of one process compute in turn, each with its own context current", async () => {
  const devices = [openEmulated(), openEmulated()];
  for (const rows of [10, 9]) {
    const shapes = { x: [rows, 8], weight: [4, 8] };
    const program = programOf("linear", shapes, ({ x, weight }) => ({
      y: linear({ x, weight }).add(1),
    }));
    const compiled = await Promise.all(devices.map((device) => device.compile(program, new Map())));
    const tensors = devices.map((device, i) => {
      const types = [...program.inputs, ...program.outputs];
      const made = new Map(types.map(([name, type]) => [name, device.allocate(type)]));
      device.write(made.get("x")!, new Array(8 * rows).fill(i + 1));
      device.write(made.get("weight")!, new Array(32).fill(0.5));
      return made;
    });
    for (let step = 0; step < 3; step++) { // launched, captured, replayed
      for (const [i, executable] of compiled.entries()) await executable.run(tensors[i]!);
    }
    for (const [i, device] of devices.entries()) {
      const found = device.read(tensors[i]!.get("y")!);
      assertEquals([...found], new Array(4 * rows).fill(4 * (i + 1) + 1));
    }
  }
  for (const device of devices) device.close();
});

testIf(CUDA)(
  "bf16: generation keeps its cache in bf16 and is the same alone and side by side",
  async () => {
    const device = openTestCuda("bf16");
    const engine = await openGolden("qwen2-p2-untied-bf16", device);
    assertEquals([...engine.createCache(1, 8).tensors.values()][0]!.dtype, "bf16");
    const { prompts } = readExpected("qwen2-p2-untied-bf16").greedy;
    const requests = prompts.slice(0, 3).map((tokens) => request(tokens, { maxTokens: 12 }));
    assertEquals(await tokensOf(engine, requests, 3), await tokensOf(engine, requests, 1));
    device.close();
  },
);
