/**
 * The checks of `doctor`: each finds one thing out and says what to do about it.
 */
import { Builder } from "../../../core/graph/builder.ts";
import { linear } from "../../../core/ops/linear.ts";
import { softmax } from "../../../core/ops/softmax.ts";
import { type DeviceName, openDevice } from "../../../core/runtime/mod.ts";
import { bytesText } from "../../output/units.ts";
import { memoryInfo, usableCores } from "../../../core/base/platform/mod.ts";

/** Result of one check. */
export interface Finding {
  readonly ok: boolean;
  readonly found: string;
  readonly remedy?: string;
}

/** One check; a required one decides the exit code. */
export interface Check {
  readonly name: string;
  readonly required: boolean;
  run(): Promise<Finding>;
}

/** Version that the project is tested with. */
const DENO_VERSION = "2.9";

/** All checks in the order shown. */
export const CHECKS: readonly Check[] = [
  {
    name: "deno",
    required: true,
    run: () =>
      Promise.resolve({
        ok: Deno.version.deno.startsWith(`${DENO_VERSION}.`),
        found: `${Deno.version.deno} on ${Deno.build.os} ${Deno.build.arch}`,
        remedy: `parscale is tested with Deno ${DENO_VERSION}`,
      }),
  },
  {
    name: "cores",
    required: false,
    run: () => Promise.resolve({ ok: true, found: `${usableCores()} usable` }),
  },
  {
    name: "memory",
    required: false,
    run() {
      const { total, available } = memoryInfo();
      const gib = (bytes: number) => (bytes / 2 ** 30).toFixed(1);
      const found = `${gib(available)} GiB free of ${gib(total)} GiB`;
      return Promise.resolve({ ok: available > 2 ** 30, found, remedy: "close other programs" });
    },
  },
  {
    name: "weight cache",
    required: false,
    run: () =>
      attempt(async () => {
        const { cacheEntries, weightCacheFolder } = await import(
          "../../../core/checkpoint/quantized_cache.ts"
        );
        const folder = weightCacheFolder();
        const entries = await cacheEntries(folder);
        const size = bytesText(entries.reduce((sum, { bytes }) => sum + bytes, 0));
        return `${size} of quantized weights in ${folder}`;
      }),
  },
  {
    name: "device cpu",
    required: true,
    run: () =>
      checkDevice("cpu", async () => {
        const { onnxRuntimePath } = await import(
          "../../../core/runtime/onnxruntime/capi/library.ts"
        );
        return `${onnxRuntimePath().split(/[/\\]/).slice(-3).join("/")} `;
      }),
  },
  {
    name: "cuda libraries",
    required: false,
    async run() {
      const { describeMachine, openMachine } = await import("../../../core/runtime/cuda/open.ts");
      return await attempt(() => Promise.resolve(describeMachine(openMachine())));
    },
  },
  {
    name: "mpi",
    required: false,
    run: () =>
      attempt(async () => {
        const { mpiVersion, openMpiLibrary } = await import("../../../core/collective/mpi.ts");
        const { detectLaunch } = await import("../../../core/collective/launch.ts");
        const env = (name: string) => Deno.env.get(name);
        const library = openMpiLibrary(env, detectLaunch(env));
        return `${library.path}: ${mpiVersion(library)}`;
      }),
  },
  {
    name: "nccl",
    required: false,
    run: () =>
      attempt(async () => {
        const { openNccl } = await import("../../../core/collective/nccl_library.ts");
        const { path, version } = openNccl();
        return `${path}: NCCL ${version}`;
      }),
  },
  {
    name: "device cuda",
    required: false,
    run: () => checkDevice("cuda"),
  },
  { name: "device webgpu", required: false, run: () => checkDevice("webgpu") },
  {
    name: "device tfjs",
    required: false,
    run: () =>
      checkDevice("tfjs", async () => {
        const { describeBinding } = await import("../../../core/runtime/tfjs/open.ts");
        return `${describeBinding()}, `;
      }),
  },
];

/** Returns what was found, or why it cannot be used. */
async function attempt(about: () => Promise<string>): Promise<Finding> {
  try {
    return { ok: true, found: await about() };
  } catch (error) {
    return unusable(error);
  }
}

/** Runs a tiny program on a device. */
async function checkDevice(
  name: DeviceName,
  library: () => Promise<string> = () => Promise.resolve(""),
): Promise<Finding> {
  try {
    const what = await library();
    const difference = await compareWithReference(name);
    const found = `${what}computes, within ${difference.toExponential(0)} of the reference`;
    return { ok: difference < 1e-5, found, remedy: "please report this" };
  } catch (error) {
    return unusable(error);
  }
}

function unusable(error: unknown): Finding {
  const hints = (error as { hints?: readonly string[] }).hints ?? [];
  return { ok: false, found: (error as Error).message, remedy: hints.join("; ") };
}

/** Largest difference between a device and the reference on a tiny program. */
async function compareWithReference(name: DeviceName): Promise<number> {
  const g = new Builder("doctor");
  const x = g.input("x", { dtype: "f32", shape: [2, 8] });
  const weight = g.parameter("weight", { dtype: "f32", shape: [4, 8] });
  g.output("y", softmax({ x: linear({ x, weight }) }));
  const program = g.build();
  const data = Float32Array.from({ length: 32 }, (_, i) => Math.sin(i));
  const weights = new Map([["weight", { dtype: "f32" as const, shape: [4, 8], data }]]);
  const results: number[][] = [];
  for (const device of [await openDevice(name, { dtype: "f32" }), await openDevice("reference")]) {
    const executable = await device.compile(program, weights);
    const input = device.allocate(program.inputs.get("x")!);
    const output = device.allocate(program.outputs.get("y")!);
    device.write(input, Array.from({ length: 16 }, (_, i) => Math.cos(i)));
    await executable.run(new Map([["x", input], ["y", output]]));
    results.push(Array.from(device.read(output)));
    device.close();
  }
  return Math.max(...results[0]!.map((y, i) => Math.abs(y - results[1]![i]!)));
}
