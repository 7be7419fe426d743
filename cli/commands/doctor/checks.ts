/**
 * The checks of `doctor`: each has a result and, where it fails, a hint.
 */
import { compareWithReference } from "../../../core/bringup/reference.ts";
import { memoryInfo, usableCores } from "../../../core/base/platform/mod.ts";
import { cacheBytes, weightCacheFolder } from "../../../core/checkpoint/quantized_cache.ts";
import { detectLaunch } from "../../../core/collective/launch.ts";
import { mpiVersion, openMpiLibrary } from "../../../core/collective/mpi.ts";
import { openNccl } from "../../../core/collective/nccl_library.ts";
import { describeMachine, openMachine } from "../../../core/runtime/cuda/open.ts";
import type { DeviceName } from "../../../core/runtime/mod.ts";
import { onnxRuntimePath } from "../../../core/runtime/onnxruntime/capi/library.ts";
import { describeBinding } from "../../../core/runtime/tfjs/open.ts";
import { bytesText } from "../../output/units.ts";

/** Result of one check. */
export interface Finding {
  readonly ok: boolean;
  readonly found: string;
  readonly remedy?: string;
}

/** One check; a required one decides the exit code. */
export interface Check {
  readonly name: string;
  readonly required?: boolean;
  /** A text is what was found, and well; an error says why it cannot be used. */
  run(): string | Finding | Promise<string | Finding>;
}

/** Version that the project is tested with. */
const DENO_VERSION = "2.9";

/** All checks in the order shown. */
export const CHECKS: readonly Check[] = [
  {
    name: "deno",
    required: true,
    run: () => ({
      ok: Deno.version.deno.startsWith(`${DENO_VERSION}.`),
      found: `${Deno.version.deno} on ${Deno.build.os} ${Deno.build.arch}`,
      remedy: `parscale is tested with Deno ${DENO_VERSION}`,
    }),
  },
  { name: "cores", run: () => `${usableCores()} usable` },
  {
    name: "memory",
    run() {
      const { total, available } = memoryInfo();
      const gib = (bytes: number) => (bytes / 2 ** 30).toFixed(1);
      const found = `${gib(available)} GiB free of ${gib(total)} GiB`;
      return { ok: available > 2 ** 30, found, remedy: "close other programs" };
    },
  },
  {
    name: "weight cache",
    async run() {
      const folder = weightCacheFolder();
      return `${bytesText(await cacheBytes(folder))} of quantized weights in ${folder}`;
    },
  },
  {
    name: "device cpu",
    required: true,
    run: () => checkDevice("cpu", `${onnxRuntimePath().split(/[/\\]/).slice(-3).join("/")} `),
  },
  { name: "cuda libraries", run: () => describeMachine(openMachine()) },
  {
    name: "mpi",
    run() {
      const env = (name: string) => Deno.env.get(name);
      const library = openMpiLibrary(env, detectLaunch(env));
      return `${library.path}: ${mpiVersion(library)}`;
    },
  },
  {
    name: "nccl",
    run() {
      const { path, version } = openNccl();
      return `${path}: NCCL ${version}`;
    },
  },
  { name: "device cuda", run: () => checkDevice("cuda") },
  { name: "device webgpu", run: () => checkDevice("webgpu") },
  { name: "device tfjs", run: () => checkDevice("tfjs", `${describeBinding()}, `) },
];

/** Returns what a check found, or why the thing cannot be used. */
export async function findingOf(check: Check): Promise<Finding> {
  try {
    const found = await check.run();
    return typeof found === "string" ? { ok: true, found } : found;
  } catch (error) {
    const { message, hints = [] } = error as Error & { hints?: readonly string[] };
    return { ok: false, found: message, remedy: hints.join("; ") };
  }
}

/** Runs a tiny program on a device, whose library is named first. */
async function checkDevice(name: DeviceName, library = ""): Promise<Finding> {
  const difference = await compareWithReference(name);
  const found = `${library}computes, within ${difference.toExponential(0)} of the reference`;
  return { ok: difference < 1e-5, found, remedy: "please report this" };
}
