/**
 * The webgpu device, where this machine has a GPU or a Vulkan driver that stands in for one.
 *
 * All of it is in this one file: tests of several files run at once in one process, and ONNX Runtime's
 * provider has one GPU context, which two threads cannot share.
 */
import { assert, assertEquals, assertRejects, assertThrows } from "@std/assert";
import { openCheckpoint } from "../../../core/checkpoint/open.ts";
import { EnvironmentError, UsageError } from "../../../core/base/errors.ts";
import { Engine } from "../../../core/generate/engine.ts";
import { RandomStream } from "../../../core/base/random.ts";
import type { Device } from "../../../core/runtime/device.ts";
import { openDevice } from "../../../core/runtime/mod.ts";
import { CpuDevice } from "../../../core/runtime/onnxruntime/cpu.ts";
import { onnxApi } from "../../../core/runtime/onnxruntime/capi/capi.ts";
import { OnnxModel } from "../../../core/runtime/onnxruntime/lowering/model.ts";
import { WebGpuDevice } from "../../../core/runtime/onnxruntime/webgpu.ts";
import { Gpu, RESULT } from "../../../core/runtime/onnxruntime/webgpu/gpu.ts";
import { linear } from "../../../core/ops/linear.ts";
import { split } from "../../../core/runtime/onnxruntime/webgpu/cpu_fallback.ts";
import { staysOnHost } from "../../../core/runtime/onnxruntime/lowering/webgpu_rules.ts";
import { testForward, testGeneration, testGradients, testOps } from "../ops/conformance.ts";
import { replaced } from "../../replaced.ts";
import { residentOf } from "../../resident.ts";
import { withScratch } from "../../scratch.ts";
import { reference, testIf } from "../devices.ts";
import { largest, logitsOf, pass } from "../engines.ts";
import { loadState, saveState } from "../../../core/train/training_state.ts";
import type { Trainer } from "../../../core/train/trainer.ts";
import {
  batchOf,
  lossesOf,
  oneRate,
  openTrainer,
  randomRows,
  testGoldenRuns,
} from "../train/golden_runs.ts";
import {
  GOLDEN_NAMES,
  maxDifference,
  modelFolder,
  openGolden,
  readExpected,
  readExpectedTensors,
  takesGolden,
} from "../goldens.ts";
import { f32, programOf, runOn } from "../programs.ts";

/** A device, or why there is none. */
function open(options: ConstructorParameters<typeof WebGpuDevice>[0] = {}): Device | string {
  try {
    return new WebGpuDevice(options);
  } catch (error) {
    if (error instanceof EnvironmentError) return error.message;
    throw error;
  }
}

const device = open();
const isPresent = typeof device !== "string";
const test = testIf(isPresent);
const half = isPresent ? open({ elements: "f16" }) : device;
for (const found of new Set([device, half])) {
  if (typeof found === "string") console.error(`tests of webgpu are skipped: ${found}`);
}

const MODEL = "qwen2-p2-tied-f32";

/** Decoding takes seconds for each model, and the same kernels as the forward pass. */
const IN_FULL = Deno.env.get("PARSCALE_LONG_TESTS") === "1";

if (typeof device !== "string") {
  const name = "webgpu";
  testOps({ name, device });
  testGradients({ name, device });
  for (const model of GOLDEN_NAMES.filter((each) => takesGolden(name, each))) {
    testForward(model, [name, () => device]);
    if (IN_FULL || model === "qwen2-p4-untied-f32") testGeneration(model, [name, () => device]);
  }
}

/** Logits of a golden model's first prompt, and by how much they differ from what is expected. */
async function measure(device: Device): Promise<{ logits: Float32Array; difference: number }> {
  const engine = await openGolden(MODEL, device);
  const { ids } = readExpected(MODEL).cases.single!;
  const logits = Float32Array.from(await logitsOf(engine, ids));
  const expected = (await readExpectedTensors(MODEL)).get("single.logits")!;
  const largest = Math.max(...Array.from(expected, Math.abs));
  return { logits, difference: maxDifference(logits, expected) / largest };
}

testIf(typeof half !== "string")(
  "in f16 logits stay within 1% of the largest, and keys and values take half the memory",
  async () => {
    const { difference } = await measure(half as Device);
    assert(difference > 1e-5 && difference < 0.01, `found ${difference}`);
    const sizes = { batch: 1, tokens: 1, capacity: 128, selected: 1 };
    const sectionsOf = async (each: unknown) =>
      (await openGolden(MODEL, each as Device)).plan(sizes).sections;
    const [small, large] = [await sectionsOf(half), await sectionsOf(device)];
    assertEquals(small.state, large.state / 2);
    assert(small.parameters < 0.6 * large.parameters);
  },
);

for (const kind of ["q8", "q4"] as const) {
  for (const elements of ["f32", "f16"] as const) {
    const test = testIf(typeof (elements === "f16" ? half : device) !== "string");
    test(`${kind} beside ${elements} is as close to the exact logits as on the cpu`, async () => {
      const matrices = { kind, block: 32 };
      const [gpu, cpu] = [new WebGpuDevice({ elements, matrices }), new CpuDevice({ matrices })];
      const [ours, theirs] = [await measure(gpu), await measure(cpu)];
      assert(ours.difference < 1.25 * theirs.difference, `${ours.difference}`);
      assert(ours.difference > theirs.difference / 2, "must be quantised");
      gpu.close();
      cpu.close();
    });
  }
}

test("rectangles are copied as in host memory, also inside one tensor", () => {
  const gpu = device as Device;
  const random = new RandomStream(3);
  for (let round = 0; round < 30; round++) {
    const [rows, width] = [1 + random.integer(4), 1 + random.integer(6)];
    const region = {
      sourceOffset: random.integer(20),
      sourceStride: width + random.integer(5),
      targetOffset: random.integer(20),
      targetStride: width + random.integer(5),
      width,
      height: rows,
    };
    const values = [1, 2].map(() => Array.from({ length: 120 }, () => random.integer(1000)));
    const results = [gpu, reference].map((each) => {
      const tensors = values.map((data) => {
        const tensor = each.allocate({ dtype: round % 2 ? "f32" : "i32", shape: [4, 30] });
        each.write(tensor, data);
        return tensor;
      });
      const target = tensors[round % 3 ? 1 : 0]!;
      // Far apart inside one tensor, where the order of the copies would show.
      const far = { ...region, targetOffset: region.targetOffset + 60 };
      each.copy(tensors[0]!, target, target === tensors[0] ? far : region);
      return Array.from(each.read(target));
    });
    assertEquals(results[0], results[1], JSON.stringify(region));
  }
});

test("new tensors are zero where there were others before", () => {
  const gpu = new WebGpuDevice();
  for (let round = 0; round < 4; round++) {
    const tensor = gpu.allocate({ dtype: "f32", shape: [1000] });
    assertEquals(Array.from(gpu.read(tensor)).some((x) => x !== 0), false);
    gpu.write(tensor, new Float32Array(1000).fill(NaN));
  }
  gpu.close();
});

test("a tensor that is too large is an error that says what to do, and the device continues", () => {
  const gpu = new WebGpuDevice();
  const huge = { dtype: "f32", shape: [1 << 20, 1 << 15] } as const;
  const message = "cannot allocate f32[1048576, 32768] on webgpu: not enough GPU memory";
  const error = assertThrows(() => gpu.allocate(huge), EnvironmentError, message);
  assert(error.hints.join().includes("--dtype f16"), error.hints.join());
  assertEquals(gpu.read(gpu.allocate({ dtype: "f32", shape: [2] })).length, 2);
  gpu.close();
});

test("weights come from one file in one form for all heads, and are read once", () =>
  withScratch(async (folder) => {
    for (const name of ["config.json", "model.safetensors"]) {
      await Deno.copyFile(`${modelFolder(MODEL)}/${name}`, `${folder}/${name}`);
    }
    const { config, tensors } = await openCheckpoint(folder);
    const gpu = new WebGpuDevice();
    const engine = new Engine(gpu, config, tensors);
    const [ids, select] = [[[5, 9, 12]], [2]];
    const best = (await pass(engine, ids, { select }, { head: "greedy" })).get("argmax")![0]!;
    await Deno.remove(`${folder}/model.safetensors`); // reading it again would fail
    assertEquals(largest(await logitsOf(engine, ids, select)), best);
    gpu.close();
  }));

test("a weight that could not be read is read again by the next program", () =>
  withScratch(async (folder) => {
    const path = `${folder}/weight`;
    const weights = new Map([["weight", { ...f32(1, 4), path, offset: 0 }]]);
    const program = programOf(
      "linear",
      { x: [1, 4] },
      ({ x }, g) => linear({ x, weight: g.parameter("weight", f32(1, 4)) }),
    );
    const gpu = new WebGpuDevice();
    await assertRejects(() => gpu.compile(program, weights), Deno.errors.NotFound);
    await Deno.writeFile(path, new Uint8Array(Float32Array.of(1, 1, 1, 1).buffer));
    const results = await runOn(gpu, program, { x: [1, 2, 3, 4] }, weights);
    assertEquals(Array.from(results.get("result")!), [10]);
    gpu.close();
  }));

test("what the provider has no kernel for is an error, not run elsewhere in silence", () => {
  const model = new OnnxModel();
  model.input("x", "f32", [undefined]);
  model.node("Sin", ["x"], {}, { output: RESULT });
  model.output(RESULT, "f32", [undefined]);
  const gpu = new Gpu();
  const message = "fallback to CPU EP has been explicitly disabled";
  assertThrows(() => gpu.session(model), Error, message);
  gpu.close();
});

test("a view has all elements of its tensor, and no fewer", () => {
  const tensor = (device as WebGpuDevice).allocate(f32(2, 3));
  const view = (device as WebGpuDevice).view(tensor, 0, f32(6));
  (device as Device).write(view, [1, 2, 3, 4, 5, 6]);
  assertEquals([...(device as Device).read(tensor)], [1, 2, 3, 4, 5, 6]);
  assertThrows(() => (device as WebGpuDevice).view(tensor, 3, f32(3)), RangeError, "a view of");
});

test("memory that is freed while a program runs is returned after it", async () => {
  const on = device as WebGpuDevice, api = onnxApi(), { free, run } = api;
  const unneeded = on.allocate(f32(4)), seen: string[] = [];
  using _ = replaced(api, {
    free: (...args) => (seen.push("freed"), free.apply(api, args)),
    run(...args) {
      const running = run.apply(api, args);
      on.free(unneeded);
      seen.push("running");
      return running;
    },
  });
  await runOn(on, programOf("twice", { x: [2] }, ({ x }) => x.add(x)), { x: [1, 2] });
  assertEquals(seen, ["running", "freed"]);
});

if (isPresent) testGoldenRuns([{ name: "webgpu", device }], () => true);

test("a run continues from the processor to webgpu and back, by micro-batches", () =>
  withScratch(async (folder) => {
    const options = { rows: 2, tokens: 16, accumulates: true };
    const on = (device: unknown) => openTrainer(device as Device, MODEL, options);
    const batches = [1, 2].map((seed) => batchOf(randomRows(seed, 2, 16)));
    const stepsOf = async (trainer: Trainer, from: number, to: number) => {
      const losses: number[] = [];
      for (let step = from; step <= to; step++) {
        for (const batch of batches) await trainer.accumulate(batch);
        losses.push(trainer.sums.loss / trainer.sums.predicted);
        await trainer.update(step, oneRate(1e-3));
      }
      return losses;
    };
    const cpu = new CpuDevice();
    const expected = await stepsOf(await on(cpu), 1, 6);
    for (const [first, second] of [[cpu, device], [device, cpu]]) {
      const before = await on(first), after = await on(second);
      const none = { lossEma: undefined, emaTokens: 0, firstLoss: undefined };
      const state = { step: 3, tokens: 0, ...none, cursor: null };
      const losses = await stepsOf(before, 1, 3);
      await saveState(folder, before, state);
      await loadState(folder, after);
      losses.push(...await stepsOf(after, 4, 6));
      losses.forEach((loss, i) => assert(Math.abs(loss - expected[i]!) < 2e-5, `step ${i + 1}`));
    }
    cpu.close();
  }));

test("a hundred steps of training keep the memory that the first ones took", async () => {
  const trainer = await openTrainer(device as Device, MODEL, { rows: 2, tokens: 16 });
  const batches = [batchOf(randomRows(1, 2, 16))];
  await lossesOf(trainer, batches, 30);
  const before = residentOf("self").now;
  await lossesOf(trainer, batches, 100);
  const grown = residentOf("self").now - before;
  assert(grown < 20e6, `${grown} bytes more`);
});

test("only small tensors keep a copy in host memory", () => {
  for (const [count, keeps] of [[1000, true], [300_000, false]] as const) {
    const tensor = (device as Device).allocate(f32(count));
    const data = new Float32Array(count).map((_, i) => i);
    (device as Device).write(tensor, data);
    const [first, second] = [(device as Device).read(tensor), (device as Device).read(tensor)];
    assertEquals([first, second], [data, data]);
    assertEquals(first === second, keeps, `${count} elements`);
    (device as Device).write(tensor, [7]);
    assertEquals((device as Device).read(tensor).slice(0, 3), new Float32Array([7, 1, 2]));
  }
});

Deno.test("sines and what they need stay on the processor, everything else does not", async () => {
  const program = programOf("split", { x: [2], y: [2] }, ({ x, y }, g) => {
    const doubled = x.add(x);
    return doubled.mul(g.parameter("weight", f32(2))).sin().mul(y).add(doubled);
  });
  const { host, rest } = split(program, staysOnHost);
  assertEquals(host!.nodes.map(({ op }) => op.name), ["add", "mul", "sin"]);
  assertEquals(rest.nodes.map(({ op }) => op.name), ["add", "mul", "add"]);
  assertEquals([...host!.inputs.keys(), ...host!.parameters.keys()], ["x", "weight"]);
  assertEquals([...rest.inputs.keys()], ["x", "y", "host.0"]);

  const [x, y, weight] = [[0.5, -1], [2, 3], [4, 5]];
  const turned = (await runOn(reference, host!, { x, weight })).get("host.0")!;
  const whole = await runOn(reference, program, { x, y, weight });
  const parts = await runOn(reference, rest, { x, y, "host.0": turned });
  assertEquals(parts.get("result"), whole.get("result"));
});

Deno.test("bf16 is refused on webgpu, f16 elsewhere, with where it is had", async () => {
  const refused = async (...args: Parameters<typeof openDevice>) => {
    const error = await assertRejects(() => openDevice(...args), UsageError);
    return [error.message, ...error.hints].join("; ");
  };
  assertEquals(
    await refused("webgpu", { dtype: "bf16" }),
    "the webgpu device does not support `--dtype bf16`, only f32 and f16; " +
      "leave out `--dtype`, or pass `--device cuda`",
  );
  for (const name of ["cpu", "tfjs", "reference", "cuda"] as const) {
    assert((await refused(name, { dtype: "f16" })).includes("pass `--device webgpu`"), name);
  }
});
