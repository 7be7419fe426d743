/**
 * The bring-up of a GPU on the emulator: it passes, and stages can fail, with what went wrong. A stage that
 * fails has all before it run, so that the late ones, which end alike, are not tried.
 */
import { assert, assertEquals, assertMatch, assertStringIncludes, assertThrows } from "@std/assert";
import { bringUp, type StageResult } from "../../../core/bringup/stages.ts";
import { EnvironmentError } from "../../../core/base/errors.ts";
import { measureCeilings } from "../../../core/runtime/cuda/ceilings.ts";
import type { CudaMachine } from "../../../core/runtime/cuda/device.ts";
import type { CudaPlace } from "../../../core/runtime/cuda/verified.ts";
import { buildForward } from "../../../core/model/forward.ts";
import type { Sizes } from "../../../core/runtime/cuda/kernels/define.ts";
import { KERNELS } from "../../../core/runtime/cuda/kernels/mod.ts";
import { emulatedMachine, emulatorPresent } from "../../emulator/mod.ts";
import { testIf } from "../devices.ts";
import { shapeOf } from "../../gpu/shapes.ts";
import { launchesOf } from "../../unit/runtime/cuda/kernels.ts";
import { machineWith } from "../../emulator/testing.ts";

const test = testIf(emulatorPresent());
const STAGES = [
  ...["libraries", "context", "memory", "copy", "compiler", "kernels in f32", "kernels in bf16"],
  ...["logits in f32", "logits in bf16", "training in f32", "training in bf16", "rates"],
];

const SIZES = { copyBytes: 1 << 16, product: 64 };

async function stagesOf(
  open: () => CudaMachine,
  { once = true, onStage = () => {} }: { once?: boolean; onStage?: () => void } = {},
) {
  const stages: StageResult[] = [];
  const verified: CudaPlace[] = [];
  const onVerified = (place: CudaPlace) => verified.push(place);
  for await (const stage of bringUp({ open, ordinal: 0, sizes: SIZES, onVerified, once })) {
    stages.push(stage);
    onStage();
  }
  return { stages, verified };
}

/** Kernels of ops that models do not use, or only where a fusion does not apply. */
const UNUSED = ["add_last", "take_last"];

/** Kernels that would need longer rows for a second block. */
const ONE_BLOCK = ["attention_slots_mma", "matmul", "rms_norm_weight"];

/**
 * A machine, the kernels that it has loaded, with file and defines, or launched with blocks in x, and how
 * many graphs it has launched.
 */
function recordingMachine() {
  const machine = emulatedMachine(), { driver, compiler } = machine;
  const loaded = new Set<string>(), modules = new Map<bigint, string>();
  const entries = new Map<bigint, string>(), wide = new Set<string>();
  let compiled = "", graphs = 0;
  const recording: CudaMachine = {
    ...machine,
    compiler: {
      version: compiler.version,
      compile(source, target) {
        compiled = `${source.name} ${nameOf(target.defines)}`;
        return compiler.compile(source, target);
      },
    },
    driver: {
      ...driver,
      cuModuleLoadData(out, bytes) { // right behind its compilation
        const code = driver.cuModuleLoadData(out, bytes);
        modules.set((out as BigUint64Array)[0]!, compiled);
        return code;
      },
      cuModuleGetFunction(out, module, name) {
        const entry = new TextDecoder().decode(name as Uint8Array<ArrayBuffer>).replace("\0", "");
        loaded.add(`${entry} of ${modules.get(module)}`);
        const code = driver.cuModuleGetFunction(out, module, name);
        entries.set((out as BigUint64Array)[0]!, entry);
        return code;
      },
      cuLaunchKernel(kernel, x, ...rest) {
        if (x > 1) wide.add(entries.get(kernel)!);
        return driver.cuLaunchKernel(kernel, x, ...rest);
      },
      cuGraphLaunch(...args) {
        graphs++;
        return driver.cuGraphLaunch(...args);
      },
    },
  };
  return { machine, recording, loaded, wide, graphs: () => graphs };
}

const nameOf = (defines: Sizes) => Object.entries(defines).toSorted().join(" ");

/** Kernels of prompts and decoding steps of the models in use, with file and defines. */
function kernelsInUse(): Set<string> {
  const used = new Set<string>();
  const models = ["0.5B", "3B"].flatMap((name) =>
    [1, 2, 8].map((streams) => ({ ...shapeOf(name, streams), numHiddenLayers: 2 }))
  );
  const sizes = [[1, 1], [1, 2], [1, 8], [64, 1]].flatMap(([tokens, batch]) =>
    (["sample", "greedy", "streams"] as const).map((head) => ({
      sizes: { batch: batch!, tokens: tokens!, capacity: 2048, selected: batch! },
      options: { head, table: batch! > 1 },
    }))
  );
  for (const config of models) {
    for (const { sizes: each, options } of sizes) {
      for (const cacheType of ["f32", "bf16"] as const) {
        const program = buildForward(config, each, { ...options, cacheType });
        for (const { kernel, defines } of launchesOf(program, cacheType, true)) {
          used.add(`${kernel.entry} of ${kernel.file.name} ${nameOf(defines)}`);
        }
      }
    }
  }
  return used;
}

test("a machine that is right passes every stage, and kernels in use are launched", async () => {
  const { machine, recording, loaded, wide, graphs } = recordingMachine();
  const after: number[] = [];
  const onStage = () => after.push(graphs());
  const { stages, verified } = await stagesOf(() => recording, { once: false, onStage });
  assertEquals(stages.map(({ stage, ok }) => [stage, ok]), STAGES.map((stage) => [stage, true]));
  const { version } = machine.compiler;
  const libraries = { driverVersion: 13000, nvrtcVersion: version, cublasLtVersion: 130100 };
  assertEquals(verified, [{ name: "Emulated H100", ...libraries }]);
  assertEquals(machine.usedBytes(), 0);
  const replays = after.map((count, i) => count - (after[i - 1] ?? 0));
  assertEquals(replays.slice(STAGES.indexOf("logits in f32")), [3, 3, 11, 11, 0]);
  const entries = new Set(Array.from(loaded, (each) => each.split(" ")[0]!));
  const missing = KERNELS.map(({ entry }) => entry).filter((entry) => !entries.has(entry));
  assertEquals(missing.toSorted(), UNUSED.toSorted());
  assertEquals([...entries.difference(wide)].toSorted(), ONE_BLOCK);
  assertEquals([...kernelsInUse().difference(loaded)], []);
});

/** A machine whose compiler changes a kernel file for one element type. */
const withKernel = (
  ...[name, BF16, from, to]: readonly [name: string, BF16: number, from: string, to: string]
) =>
(machine: CudaMachine = emulatedMachine()) => {
  const { version, compile } = machine.compiler;
  const compileChanged: typeof compile = (source, target) => {
    if (source.name !== name || target.defines.BF16 !== BF16) return compile(source, target);
    const text = source.text.replace(from, to);
    assert(text !== source.text);
    return compile({ ...source, text }, target);
  };
  return { ...machine, compiler: { version, compile: compileChanged } };
};

const failing = (message: string) => () => {
  throw new EnvironmentError(message, { hints: [] });
};

const FAULTS: readonly (readonly [stage: string, open: () => CudaMachine, found: string])[] = [
  ["libraries", failing("cannot load libcuda.so: tried nothing"), "cannot load libcuda.so"],
  [
    "context",
    () => machineWith("cuDevicePrimaryCtxRetain", () => () => 999),
    "cannot open a context: CUDA_ERROR_UNKNOWN (999)",
  ],
  [
    "memory",
    () => machineWith("cuMemAlloc_v2", () => () => 2),
    "cannot allocate 16777216 bytes on the device: CUDA_ERROR_OUT_OF_MEMORY (2)",
  ],
  [
    "copy",
    () =>
      machineWith("cuMemcpyDtoH_v2", (original) => (to, from, bytes) => {
        const code = original(to, from, bytes);
        (to as Float32Array<ArrayBuffer>)[77] = 1;
        return code;
      }),
    "memory that was copied there and back differs",
  ],
  ["compiler", () => {
    const compile = failing("cannot compile forward/embedding.cu for sm_90");
    return { ...emulatedMachine(), compiler: { version: "13.0", compile } };
  }, "cannot compile forward/embedding.cu"],
  [
    "kernels in f32",
    withKernel("forward/rope.cu", 0, "b * c + a * s", "b * c - a * s"),
    "op rotate_and_write differs from the reference by",
  ],
  [
    "kernels in bf16",
    withKernel("backward/attention_mma.cu", 1, "(product - query.delta)", "product"),
    "op gradient of attention differs from the reference by",
  ],
  [
    "logits in f32",
    () => machineWith("cuGraphLaunch", () => () => 700),
    "cannot launch a graph: CUDA_ERROR_ILLEGAL_ADDRESS (700)",
  ],
];

for (const [stage, open, found] of FAULTS) {
  test(`bring-up ends at the stage "${stage}" when that fails, and names what failed`, async () => {
    const { stages, verified } = await stagesOf(open);
    const last = stages.at(-1)!;
    assertEquals([last.stage, last.ok, verified], [stage, false, []]);
    assertEquals(stages.length, STAGES.indexOf(stage) + 1);
    assertStringIncludes(last.found, found);
  });
}

test("rates that cannot be measured are an error", () => {
  const machine = machineWith("cuEventElapsedTime", () => () => 400);
  const message = "cannot read the time between two events: CUDA_ERROR_INVALID_HANDLE (400)";
  assertThrows(() => measureCeilings(machine, 0, SIZES), Error, message);
});

test("the context is kept from its first stage on, and released in the end", async () => {
  const machine = emulatedMachine(), { driver } = machine;
  const held: number[] = [0];
  const count = <A extends unknown[]>(by: number, call: (...args: A) => number) => (...args: A) => {
    held.push(held.at(-1)! + by);
    return call(...args);
  };
  const counted = {
    ...driver,
    cuDevicePrimaryCtxRetain: count(1, driver.cuDevicePrimaryCtxRetain),
    cuDevicePrimaryCtxRelease_v2: count(-1, driver.cuDevicePrimaryCtxRelease_v2),
  };
  const compile = failing("no compiler");
  const failed = { ...machine, driver: counted, compiler: { version: "13.0", compile } };
  assertEquals((await stagesOf(() => failed)).stages.at(-1)!.stage, "compiler");
  assertEquals(held, [0, 1, 2, 1, 2, 1, 2, 1, 0]);
});

test("a kernel whose second run gives other bits is named by its op", async () => {
  const counted = "([] { static float runs; return runs += 1e-6f; })()";
  const open = withKernel("forward/rope.cu", 0, "b * c + a * s", `b * c + a * s + ${counted}`);
  const last = (await stagesOf(open, { once: false })).stages.at(-1)!;
  assertMatch(last.found, /^op rotate_and_write of f32\[.*: two runs differ$/);
});

test("a kernel that faults is named by its op, and a close that fails then does not hide it", async () => {
  const machine = machineWith("cuDevicePrimaryCtxRelease_v2", (release, count) => {
    return count <= 3 ? release : () => 719; // three stages come before
  });
  const nowhere = "((volatile float*)0)[0]";
  const change = withKernel("forward/rope.cu", 0, "b * c + a * s", nowhere);
  const last = (await stagesOf(() => change(machine))).stages.at(-1)!;
  assertEquals([last.stage, last.ok], ["kernels in f32", false]);
  assertMatch(last.found, /^op rotate_and_write of f32\[.*: Cannot run kernel rope_.* no memory$/);
});
