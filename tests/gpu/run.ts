/**
 * Everything that wants a GPU, by one command: bring-up, conformance, golden models, every command,
 * training over all GPUs, benchmarks. Without CUDA, as on GPUs of other makers, what WebGPU can do.
 *
 *   deno task test:gpu [--shape 0.5B,3B] [--streams 1,8] [--batch 1] [--context 1024] [--steps 64]
 *       [--train-tokens 2048] [--skip conformance,bench] [--out gpu.json] [--emulated] [--sanitize]
 *       [--python PYTHON --torch bench_torch.py]
 *
 * Stages are independent: what fails is reported, and the rest still runs. One table goes to standard
 * output, everything into one JSON file. With --torch the same shapes are timed by that script in the
 * same run, one after the other. --sanitize runs the conformance suite under each tool of
 * compute-sanitizer, where that is installed. --emulated runs the same script on the emulator of the tests with tiny
 * shapes: it shows that the script works, its times mean nothing.
 */
import { fileURLToPath } from "node:url";
import { assert, assertEquals } from "@std/assert";
import { parseArgs } from "@std/cli/parse-args";
import Table from "cli-table3";
import { benchTasks, type Timing } from "./bench.ts";
import { type CommandResult, runCommands } from "./commands.ts";
import { bringUp, type StageResult } from "../../core/bringup/stages.ts";
import { type Ceilings, measureCeilings } from "../../core/runtime/cuda/ceilings.ts";
import { CudaDevice, type CudaMachine } from "../../core/runtime/cuda/device.ts";
import type { ComputeType } from "../../core/runtime/cuda/memory.ts";
import { countCudaDevices, openMachine } from "../../core/runtime/cuda/open.ts";
import { recordVerified } from "../../core/runtime/cuda/verified.ts";
import { emulatedMachine } from "../emulator/mod.ts";
import { type Finding, trainOverAll } from "./ranks.ts";
import { batchOf, lossesOf, openTrainer, randomRows } from "../device/train/golden_runs.ts";

const flags = parseArgs(Deno.args, {
  string: [
    ...["shape", "streams", "batch", "context", "steps", "train-tokens", "skip", "out"],
    ...["python", "torch"],
  ],
  boolean: ["emulated", "sanitize"],
  default: {
    streams: "1,8",
    batch: "1",
    steps: "64",
    skip: "",
    out: "gpu.json",
    python: "python3",
  },
});
const emulated = flags.emulated;
const numbers = (text: string) => text.split(",").map(Number);
const shapes = (flags.shape ?? (emulated ? "tiny" : "0.5B,3B")).split(",");
const context = Number(flags.context ?? (emulated ? 16 : 1024));
const trainTokens = Number(flags["train-tokens"] ?? (emulated ? 16 : 2048));
const skipped = new Set(flags.skip.split(","));

/** The real libraries, or the emulator, which tries the script but measures nothing. */
function machineFor(): CudaMachine {
  return emulated ? emulatedMachine({ memoryBytes: 2 ** 34 }) : openMachine();
}

/** Reason why CUDA cannot be used; undefined where it can. */
const noCuda: string | undefined = (() => {
  try {
    machineFor();
  } catch (error) {
    return (error as Error).message;
  }
})();

const openDevice = (elements: ComputeType) => new CudaDevice(machineFor(), { elements });

/** Everything found. */
const report: {
  stages: StageResult[];
  findings: Finding[];
  suites: { name: string; passed: number; failed: number }[];
  commands: CommandResult[];
  timings: Timing[];
  peers: unknown[];
  failures: string[];
} = { stages: [], findings: [], suites: [], commands: [], timings: [], peers: [], failures: [] };

/** Stages that do not need CUDA. */
const ON_ANY_GPU = ["conformance", "commands"];

/** Runs one stage; what goes wrong in it does not keep the others from running. */
async function stage(name: string, run: () => void | Promise<void>): Promise<void> {
  if (skipped.has(name) || noCuda && !ON_ANY_GPU.includes(name)) return;
  console.error(`${name} …`);
  try {
    await run();
  } catch (error) {
    report.failures.push(`${name}: ${error instanceof Error ? error.stack : error}`);
  }
  write();
}

/** Writes what is known so far, as a later stage may end the process. */
const write = () =>
  Deno.writeTextFileSync(flags.out, JSON.stringify({ emulated, ...report }, null, 2));

/**
 * Suites whose tests of the cuda device run on the GPU when the variable says so, and those of webgpu,
 * which find it where there is a Vulkan driver for it, and pass none of them elsewhere.
 */
const SUITES = [
  ...(noCuda ? "" : "ops/ops ops/gradients model/loss model/model train/trainer " +
    "cuda/device cuda/ptx cuda/attention cuda/linear cuda/nccl " +
    "generate/sample generate/asynchronous generate/beam_search").split(" ").filter(Boolean),
  ...(emulated ? [] : ["webgpu/webgpu"]),
];

/** Runs the suites, each in a process of its own, behind other words of a command line if there are any. */
async function conformance(suites: readonly string[], before: readonly string[] = []) {
  for (const suite of suites) {
    const path = fileURLToPath(new URL(`../device/${suite}_test.ts`, import.meta.url));
    const test = ["test", "-A", "--no-check"];
    if (!suite.startsWith("cuda/")) test.push("--filter", "/cuda|webgpu|bf16|f16|f32/");
    const [program, ...args] = [...before, Deno.execPath(), ...test, path];
    const { code, stdout } = await new Deno.Command(program!, {
      args,
      env: {
        NO_COLOR: "1",
        ...(noCuda ? {} : { [emulated ? "PARSCALE_TEST_EMULATED" : "PARSCALE_TEST_GPU"]: "1" }),
      },
      stderr: "inherit",
    }).output();
    const text = new TextDecoder().decode(stdout);
    const name = [suite, ...before.slice(2)].join(" ");
    const [, passed = 0, failed = 1] = /(\d+) passed.*? (\d+) failed/.exec(text) ?? [];
    report.suites.push({ name, passed: Number(passed), failed: Number(failed) });
    const isEmpty = Number(passed) === 0 && !suite.startsWith("webgpu/");
    if (code !== 0 || isEmpty) report.failures.push(`${name}:\n${text.slice(-4000)}`);
  }
}

/** Tools by what they look for: wrong addresses, races, reads of nothing, barriers gone wrong. */
const TOOLS = ["memcheck", "racecheck", "initcheck", "synccheck"];

async function sanitize(): Promise<void> {
  for (const tool of TOOLS) {
    const before = ["compute-sanitizer", "--error-exitcode=9", `--tool=${tool}`];
    await conformance(["ops/ops", "ops/gradients", "cuda/attention", "cuda/linear"], before);
  }
}

/** Trains a small model twice: the loss falls, and both runs are equal bit for bit. */
async function trainTwice(elements: ComputeType, steps: number): Promise<void> {
  const sizes = { rows: 4, tokens: 32 };
  const batches = Array.from({ length: 16 }, (_, i) => batchOf(randomRows(i, 4, 32)));
  const runs: number[][] = [];
  for (let run = 0; run < 2; run++) {
    const device = openDevice(elements);
    const trainer = await openTrainer(device, "qwen2-p4-untied-f32", sizes);
    runs.push(await lossesOf(trainer, batches, steps));
    device.close();
  }
  const [first, second] = runs as [number[], number[]];
  assertEquals(first, second, "two runs differ");
  assert(first.at(-1)! < first[0]!, `the loss went from ${first[0]} to ${first.at(-1)}`);
}

async function benchmarks(ceilings: Ceilings): Promise<void> {
  for (const shape of shapes) {
    const plan = {
      shape,
      streams: numbers(flags.streams),
      batches: numbers(flags.batch),
      context,
      steps: emulated ? 4 : Number(flags.steps),
      trainTokens: trainTokens > 0 ? trainTokens : undefined,
    };
    for (const { label, run } of benchTasks(plan, ceilings)) {
      await stage(label, async () => {
        const device = openDevice("bf16");
        try {
          report.timings.push(...await run(device));
        } finally {
          device.close();
        }
      });
    }
  }
}

async function peers(script: string): Promise<void> {
  const { stdout } = await new Deno.Command(flags.python, {
    args: [
      ...[script, "--preset", shapes.join(), "--P", flags.streams, "--batch", flags.batch],
      ...["--prompt", String(context), "--train-len", String(trainTokens), "--dtype", "bf16"],
      ...["--modes", "eager,compile,graph,cgraph"],
    ],
    stderr: "inherit",
  }).output();
  const lines = new TextDecoder().decode(stdout).split("\n").filter((line) => line.startsWith("{"));
  report.peers.push(...lines.map((line) => JSON.parse(line)));
}

function print(): void {
  if (noCuda) console.log(`cuda: not used, ${noCuda}`);
  const table = new Table({ head: ["what", "P", "B", "ms", "of the ceiling", "best torch"] });
  for (const { what, shape, streams, batch, ms, share } of report.timings) {
    const best = bestPeer({ what, shape, streams, batch });
    table.push([
      ...[`${what} ${shape}`, streams, batch, ms.toFixed(3), `${(share * 100).toFixed(0)}%`],
      best === undefined ? "" : `${(best / ms).toFixed(2)}x`,
    ]);
  }
  for (const { stage, ok, found, seconds } of report.stages) {
    console.log(`${stage}: ${ok ? "ok" : "FAILED"}, ${found} (${seconds.toFixed(1)} s)`);
  }
  for (const { name, figure, unit } of report.findings) console.log(`${name}: ${figure} ${unit}`);
  for (const { name, passed, failed } of report.suites) {
    console.log(`${name}: ${passed} passed, ${failed} failed`);
  }
  for (const { device, command, error, difference } of report.commands) {
    console.log(
      `${command} on ${device}: ${error ?? `within ${difference!.toExponential(0)} of cpu`}`,
    );
  }
  if (report.timings.length > 0) console.log(table.toString());
  for (const failure of report.failures) console.log(`FAILED ${failure}`);
}

/** Milliseconds of the fastest mode of the other program for the same work. */
function bestPeer(row: Pick<Timing, "what" | "shape" | "streams" | "batch">): number | undefined {
  const same = (report.peers as Record<string, unknown>[]).filter((peer) =>
    peer.what === row.what && peer.preset === row.shape && peer.P === row.streams &&
    peer.batch === row.batch
  );
  const times = same.flatMap((peer) => {
    if (typeof peer.ms_per_token === "number") return [peer.ms_per_token];
    if (typeof peer.ms_per_step === "number") return [peer.ms_per_step];
    return typeof peer.seconds === "number" ? [peer.seconds * 1000] : [];
  });
  return times.length > 0 ? Math.min(...times) : undefined;
}

const sizes = emulated
  ? { copyBytes: 1 << 16, product: 64 }
  : { copyBytes: 2 ** 31, product: 8192 };
let ceilings: Ceilings = { bandwidth: NaN, flopRate: NaN };
await stage("bring-up", async () => {
  const onVerified = emulated ? () => {} : recordVerified;
  const options = { open: machineFor, ordinal: 0, sizes, onVerified, once: emulated };
  for await (const result of bringUp(options)) {
    report.stages.push(result);
    if (!result.ok) throw new Error(`${result.stage}: ${result.found}`);
  }
});
await stage("ceilings", () => {
  ceilings = measureCeilings(machineFor(), 0, sizes);
});
await stage("conformance", () => conformance(SUITES));
if (flags.sanitize) await stage("sanitize", sanitize);
await stage("commands", async () => {
  if (emulated) return; // a command opens what the machine has
  const hasWebGpu = report.suites.some(({ name, passed }) =>
    name === "webgpu/webgpu" && passed > 0
  );
  if (noCuda && !hasWebGpu) throw new Error(`neither CUDA nor WebGPU found a GPU: ${noCuda}`);
  const devices = [...(noCuda ? [] : ["cuda"]), ...(hasWebGpu ? ["webgpu"] : [])];
  report.commands.push(...await runCommands(devices));
  for (const { device, command, error } of report.commands) {
    if (error) report.failures.push(`${command} on ${device}: ${error}`);
  }
});
await stage("training", async () => {
  for (const elements of ["f32", "bf16"] as const) await trainTwice(elements, emulated ? 4 : 1000);
});
await stage("ranks", async () => {
  const gpus = emulated ? 1 : countCudaDevices();
  report.findings.push(...await trainOverAll(gpus, emulated ? "cpu" : "cuda"));
});
if (!skipped.has("bench")) await benchmarks(ceilings);
if (flags.torch) await stage("peers", () => peers(flags.torch!));
print();
write();
Deno.exit(report.failures.length === 0 ? 0 : 1);
