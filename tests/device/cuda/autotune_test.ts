/**
 * Whether attention runs on warpgroups is found out on the machine: on an emulated one whose clock is
 * scripted, and whose compiler can be made to give a kernel that is wrong.
 *
 * Needs Linux and g++; elsewhere every test but that of the records is skipped.
 */
import { assertEquals, assertStringIncludes, assertThrows } from "@std/assert";
import { Builder } from "../../../core/graph/builder.ts";
import { attention } from "../../../core/ops/attention.ts";
import { CudaDevice } from "../../../core/runtime/cuda/device.ts";
import { CudaError } from "../../../core/runtime/cuda/driver/errors.ts";
import { Driver } from "../../../core/runtime/cuda/driver/driver.ts";
import { KernelLoader } from "../../../core/runtime/cuda/kernel_loader.ts";
import type { KernelSource } from "../../../core/runtime/cuda/driver/nvrtc.ts";
import { Autotuner, shapeClass } from "../../../core/runtime/cuda/autotune.ts";
import {
  type AutotuneRecord,
  AutotuneRecords,
  describeFailures,
} from "../../../core/runtime/cuda/autotune.ts";
import {
  EMULATED_ARCHITECTURE,
  emulatedMachine,
  EmulatorError,
  emulatorPresent,
} from "../../emulator/mod.ts";

const ignore = !emulatorPresent();

const SIZES = {
  ...{ R: 1, rows: 1, P: 1, B: 1, T: 40, S: 60, K: 2, G: 2, M: 3 },
  ...{ scale: 1 / 8, HEAD_DIM: 64 },
};
const SHAPE = "HEAD_DIM 64, G 2, 128 queries, 64 slots";

/** Text of the kernel to be tuned, changed. */
type Change = (text: string) => string;

/** A machine on which launches take the time that is written here, in milliseconds by kernel. */
function scripted(times: Record<string, number>, change: Change = (text) => text) {
  const { driver: real, compiler, products } = emulatedMachine();
  const names = new Map<bigint, string>();
  const launches: string[] = [];
  const last = new Map<bigint, string>(); // by event
  const driver: typeof real = {
    ...real,
    cuModuleGetFunction(out, module, name) {
      const code = real.cuModuleGetFunction(out, module, name);
      const text = new TextDecoder().decode(name as Uint8Array<ArrayBuffer>).replace("\0", "");
      names.set((out as BigUint64Array<ArrayBuffer>)[0]!, text);
      return code;
    },
    cuLaunchKernelEx(config, kernel, parameters, extra) {
      launches.push(names.get(kernel)!);
      return real.cuLaunchKernelEx(config, kernel, parameters, extra);
    },
    cuEventRecord(event, stream) {
      last.set(event, launches.at(-1) ?? "");
      return real.cuEventRecord(event, stream);
    },
    cuEventElapsedTime(out, _, end) {
      (out as Float32Array<ArrayBuffer>)[0] = times[last.get(end)!]!;
      return 0;
    },
  };
  const compile = (source: KernelSource, target: Parameters<typeof compiler.compile>[1]) => {
    const isNew = source.name.endsWith("attention_wgmma.cu");
    return compiler.compile(isNew ? { ...source, text: change(source.text) } : source, target);
  };
  const count = (entry: string) => launches.filter((name) => name === entry).length;
  return { driver, compiler: { version: compiler.version, compile }, products, count };
}

const [FAST, SLOW] = [{ attention_mma: 3, attention_wgmma: 2 }, {
  attention_mma: 2,
  attention_wgmma: 3,
}];
const WRONG = replacing("total[half] * keep[half] + sum", "total[half] + sum");
const LEAKS = replacing("clearRows(stage.values[i], highest + 1 - begin)", "");

function replacing(from: string, to: string): Change {
  return (text) => {
    assertStringIncludes(text, from);
    return text.replace(from, to);
  };
}

function autotunerOn(machine: ReturnType<typeof scripted>, files?: AutotuneRecords) {
  const driver = new Driver(machine.driver);
  const stream = driver.createStream();
  const { compiler } = machine;
  const kernels = new KernelLoader(driver, { compiler, architecture: EMULATED_ARCHITECTURE });
  return { driver, autotuner: new Autotuner({ driver, stream, kernels, files }) };
}

/** A folder for records. */
function withFiles(body: (files: AutotuneRecords) => void) {
  const folder = Deno.makeTempDirSync();
  try {
    body(new AutotuneRecords(`${folder}/autotune`));
  } finally {
    Deno.removeSync(folder, { recursive: true });
  }
}

Deno.test({
  name: "what agrees and is faster is chosen, and remembered in memory and on disk",
  ignore,
  fn: () =>
    withFiles((files) => {
      for (const [times, chosen] of [[FAST, true], [SLOW, false]] as const) {
        const machine = scripted(times);
        const { autotuner, driver } = autotunerOn(machine, files);
        const free = driver.memoryInfo().free;
        const sizes = { ...SIZES, G: chosen ? 2 : 1 };
        assertEquals(autotuner.prefersWarpgroups(sizes), chosen);
        assertEquals(driver.memoryInfo().free, free, "what it ran on is freed");
        assertEquals([machine.count("attention_mma"), machine.count("attention_wgmma")], [6, 6]);
        assertEquals(autotuner.prefersWarpgroups({ ...sizes, T: 39, S: 61, rows: 7 }), chosen);
        assertEquals(machine.count("attention_wgmma"), 6, "the same class");
        const later = scripted({});
        assertEquals(autotunerOn(later, files).autotuner.prefersWarpgroups(sizes), chosen);
        assertEquals(later.count("attention_wgmma"), 0, "read from disk");
      }
      const records = files.list();
      assertEquals(records.map(({ outcome }) => outcome).sort(), ["faster", "slower"]);
      const record = records.find(({ outcome }) => outcome === "faster");
      assertEquals(record, {
        ...{ device: "Emulated H100", shape: SHAPE, outcome: "faster" },
        milliseconds: FAST,
      });
      assertEquals(describeFailures(records), "");
    }),
});

for (
  const [how, change] of [["loses sums", WRONG], ["lets hidden slots through", LEAKS]] as const
) {
  Deno.test({
    name: `a kernel that ${how} is never chosen, however fast, and doctor hears of it`,
    ignore,
    fn: () =>
      withFiles((files) => {
        const { autotuner } = autotunerOn(scripted(FAST, change), files);
        const sizes = { ...SIZES, S: 300 };
        assertEquals(autotuner.prefersWarpgroups(sizes), false);
        const [record] = files.list() as [AutotuneRecord];
        assertEquals(record.outcome, "wrong");
        assertEquals(
          describeFailures([record]),
          "attention on warpgroups disagreed on Emulated H100 (HEAD_DIM 64, G 2, 128 queries, " +
            "512 slots) and is not used",
        );
      }),
  });
}

Deno.test({
  name: "a kernel that crashes its process is not run again",
  ignore,
  fn: () =>
    withFiles((files) => {
      const fails = replacing("takeTurn();", "takeTurn(); __trap();");
      const { autotuner } = autotunerOn(scripted(FAST, fails), files);
      assertThrows(() => autotuner.prefersWarpgroups(SIZES), EmulatorError, "__trap");
      const later = scripted(FAST);
      assertEquals(autotunerOn(later, files).autotuner.prefersWarpgroups(SIZES), false);
      assertEquals(later.count("attention_wgmma"), 0);
      assertEquals(describeFailures(files.list()).includes("did not end"), true);
    }),
});

Deno.test({
  name: "a device that reports the failure is told with the remedy",
  ignore,
  fn: () =>
    withFiles((files) => {
      const machine = scripted(FAST);
      const failing = { ...machine.driver, cuEventSynchronize: () => 700 };
      const { autotuner } = autotunerOn({ ...machine, driver: failing }, files);
      const error = assertThrows(
        () => autotuner.prefersWarpgroups(SIZES),
        CudaError,
        "ILLEGAL_ADDRESS",
      );
      assertStringIncludes(error.hints[0]!, "run it again");
      assertEquals(files.list().map(({ outcome }) => outcome), ["began"]);
    }),
});

Deno.test({
  name: "without memory for the benchmark nothing is recorded",
  ignore,
  fn: () =>
    withFiles((files) => {
      const machine = scripted(FAST);
      const { autotuner } = autotunerOn({
        ...machine,
        driver: { ...machine.driver, cuMemAlloc_v2: () => 2 },
      }, files);
      assertEquals([autotuner.prefersWarpgroups(SIZES), files.list()], [false, []]);
    }),
});

Deno.test({
  name: "a device tunes when it compiles, not when it plans memory",
  ignore,
  async fn() {
    const g = new Builder("attention");
    const f32 = (...shape: number[]) => ({ dtype: "f32", shape }) as const;
    const [q, keys, values] = ["q", "keys", "values"].map((name) =>
      g.input(name, name === "q" ? f32(1, 20, 2, 64) : f32(1, 1, 20, 64))
    );
    const visible = { last: g.input("last", { dtype: "i32", shape: [1, 20] }) };
    g.output("out", attention({ q: q!, keys: keys!, values: values!, visible }));
    const program = g.build();
    const machine = scripted(FAST);
    const device = new CudaDevice({ ...machine, products: () => machine.products }, {
      elements: "bf16",
      wgmma: "autotune",
    });
    device.plan(program, new Map());
    assertEquals(machine.count("attention_wgmma"), 0);
    const executable = await device.compile(program, new Map());
    assertEquals(machine.count("attention_wgmma"), 6);
    const all = [...program.inputs, ...program.outputs];
    await executable.run(new Map(all.map(([name, type]) => [name, device.allocate(type)])));
    assertEquals([machine.count("attention_wgmma"), machine.count("attention_mma")], [7, 6]);
    device.close();
  },
});

Deno.test("classes of sizes are by powers of two, and a damaged record is none", () => {
  assertEquals(
    shapeClass({ HEAD_DIM: 128, G: 7, T: 2048, S: 2049 }),
    [
      "HEAD_DIM 128, G 7, 16384 queries, 4096 slots",
    ].join(),
  );
  withFiles((files) => {
    assertEquals(files.list(), []);
    files.write("key", { device: "x", shape: "y", outcome: "wrong" });
    assertEquals(files.read("key")?.outcome, "wrong");
    Deno.writeTextFileSync(`${files.folder}/key.json`, "{");
    assertEquals([files.read("key"), files.list()], [undefined, []]);
  });
});
