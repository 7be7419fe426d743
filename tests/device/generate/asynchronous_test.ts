/**
 * Decoding on devices that draw tokens themselves: the same texts as on the processor, whatever ends
 * them and requests that join meanwhile, and the next step is on its way before the last one is read.
 */
import { assertEquals, assertRejects, assertThrows } from "@std/assert";
import { openCheckpoint } from "../../../core/checkpoint/open.ts";
import { NumericalError } from "../../../core/base/errors.ts";
import { Engine } from "../../../core/generate/engine.ts";
import type { GenerationRequest } from "../../../core/generate/generate.ts";
import { RandomStream } from "../../../core/base/random.ts";
import type { Device } from "../../../core/runtime/device.ts";
import { CpuDevice } from "../../../core/runtime/onnxruntime/cpu.ts";
import { GREEDY, type SamplingOptions } from "../../../core/base/sampling.ts";
import { emulatorPresent } from "../../emulator/mod.ts";
import { machineWith } from "../../emulator/testing.ts";
import { openEmulated, samplers, testIf } from "../devices.ts";
import { generated, prompt, request } from "../engines.ts";
import { modelFolder, openGolden, withNaN } from "../goldens.ts";

const test = testIf(emulatorPresent());
const MODEL = "qwen2-p2-tied-f32";
const WARM: SamplingOptions = { temperature: 1.5, topK: 40, topP: 0.95, minP: 0.01 };
const HOT: SamplingOptions = { temperature: 1, topK: 0, topP: 1, minP: 0 };

/** A request whose length, sampling and random numbers depend on its index. */
function requestOf(index: number, changes: Partial<GenerationRequest> = {}): GenerationRequest {
  return request(prompt(index), {
    maxTokens: 3 + index * 7 % 13,
    sampling: [GREEDY, WARM, HOT][index % 3]!,
    random: new RandomStream(5, index),
    ...changes,
  });
}

/** Ends by limit, by end token and by stop string, in an order of its own. */
function requests(): GenerationRequest[] {
  return Array.from({ length: 10 }, (_, i) => {
    let count = 0;
    if (i % 4 === 1) return requestOf(i, { maxTokens: 30, shouldStop: () => ++count === 4 });
    if (i % 4 === 2) {
      return requestOf(i, {
        maxTokens: 20,
        eosTokenIds: Array.from({ length: 60 }, (_, id) => id),
      });
    }
    return requestOf(i, i === 3 ? { maxTokens: 1 } : {});
  });
}

for (const [name, open] of samplers) {
  Deno.test(`${name}: texts are those of the processor, alone and together`, async () => {
    const processor = await openGolden(MODEL, new CpuDevice({ threads: 1 }));
    const expected = await generated(processor, requests(), 1);
    const engine = await openGolden(MODEL, open());
    for (const batch of [1, 3, 8]) {
      assertEquals(await generated(engine, requests(), batch), expected, `batch of ${batch}`);
    }
    const reversed = await generated(engine, requests().reverse(), 4);
    assertEquals(reversed.reverse(), expected);
  });

  Deno.test(`${name}: a text that outgrows its cache, and one that joins it late`, async () => {
    const all = () => [
      requestOf(0, { tokens: prompt(0, 250), maxTokens: 20 }),
      requestOf(1, { maxTokens: 12, random: new RandomStream(5, 1) }),
    ];
    const slow = async function* () {
      const [first, second] = all() as [GenerationRequest, GenerationRequest];
      yield first;
      await new Promise((resolve) => setTimeout(resolve, 30));
      yield second;
    };
    const expected = await generated(
      await openGolden(MODEL, new CpuDevice({ threads: 1 })),
      all(),
      1,
    );
    const engine = await openGolden(MODEL, open());
    assertEquals(await generated(engine, all(), 2), expected);
    assertEquals(await generated(engine, slow(), 2), expected);
  });

  Deno.test(`${name}: the context ends a text, though the next step was issued`, async () => {
    const engine = await openGolden(MODEL, open(), { maxPositionEmbeddings: 24 });
    const long = [20, 23, 24].map((length, i) =>
      requestOf(i, { tokens: prompt(i, length), maxTokens: 99 })
    );
    assertEquals((await generated(engine, long, 2)).map((x) => x.tokens.length), [4, 1, 0]);
  });

  Deno.test(`${name}: a NaN among the logits is a numerical error`, async () => {
    const { config, tensors } = await openCheckpoint(modelFolder(MODEL));
    const engine = new Engine(open(), config, withNaN(tensors, "model.norm.weight", 3));
    await assertRejects(() => generated(engine, [requestOf(1)], 1), NumericalError, "a NaN logit");
  });
}

/** Notes when a program of a device runs, and when a result is waited for. */
function watch(device: Device, log: string[]): void {
  const compile = device.compile.bind(device), later = device.readLater!.bind(device);
  device.compile = async (...args) => {
    const executable = await compile(...args);
    return {
      run: (bindings) => {
        log.push("run");
        return executable.run(bindings);
      },
    };
  };
  device.readLater = (tensor) => {
    const wait = later(tensor);
    return () => {
      log.push("wait");
      return wait();
    };
  };
}

test("a step is issued before the one before it is read, and none in vain for a known limit", async () => {
  const log: string[] = [];
  const device = openEmulated();
  watch(device, log);
  const engine = await openGolden(MODEL, device);
  await generated(engine, [requestOf(0, { maxTokens: 6 })], 1);
  // The prompt, then five steps for tokens 2 to 6, each issued one ahead.
  const [ahead, last] = [["run", "wait"], ["wait"]];
  assertEquals(log, ["run", "run", ...ahead, ...ahead, ...ahead, ...ahead, ...last]);
});

test("results read later keep their values until they are waited for, in any order", () => {
  const device = openEmulated();
  const tensor = device.allocate({ dtype: "i32", shape: [300] });
  const waits = Array.from({ length: 20 }, (_, i) => {
    device.write(tensor, new Int32Array(300).fill(i));
    return device.readLater(tensor);
  });
  for (const i of [19, 4, 11]) assertEquals([...new Set(waits[i]!())], [i]);
  // Memory of a result that was taken is used again.
  device.write(tensor, new Int32Array(300).fill(99));
  assertEquals([...new Set(device.readLater(tensor)())], [99]);
  assertEquals([...new Set(waits[7]!())], [7]);
  const large = device.allocate({ dtype: "f32", shape: [5000] });
  assertEquals(device.readLater(large)().length, 5000);
  device.close();
});

test("a device that fails while a result is awaited is an error, not a wait for ever", () => {
  const device = openEmulated("f32", machineWith("cuEventSynchronize", () => () => 700));
  const wait = device.readLater(device.allocate({ dtype: "i32", shape: [4] }));
  assertThrows(wait, Error, "CUDA_ERROR_ILLEGAL_ADDRESS");
});
