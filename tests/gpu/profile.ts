/**
 * Time of every kernel and product of one step on a GPU, largest first.
 *
 *   deno run -A tests/gpu/profile.ts [--shape 0.5B] [--streams 8] [--what train|peft|decode|prefill]
 *       [--tokens 2048] [--top 20] [--emulated]
 *
 * The driver's functions are wrapped: each launch of the first, uncaptured run is issued again between two
 * events. Launches that overwrite what they read compute nonsense then; their times stay.
 */
import { parseArgs } from "@std/cli/parse-args";
import Table from "cli-table3";
import { cacheFolder } from "../../core/base/cache_folder.ts";
import { Engine } from "../../core/generate/engine.ts";
import { CudaDevice, type CudaMachine } from "../../core/runtime/cuda/device.ts";
import { withCache } from "../../core/runtime/cuda/kernel_loader.ts";
import { openMachine } from "../../core/runtime/cuda/open.ts";
import { emulatedMachine } from "../emulator/mod.ts";
import { openBenchTrainer } from "./bench.ts";
import { shapeOf, sharedWeights } from "./shapes.ts";

const flags = parseArgs(Deno.args, {
  boolean: ["emulated"],
  string: ["shape", "streams", "what", "tokens", "top"],
  default: { shape: "0.5B", streams: "8", what: "train", tokens: "2048", top: "20" },
});
const tokens = Number(flags.tokens);
const config = shapeOf(flags.shape, Number(flags.streams));

/** Milliseconds and launches by name. */
const found = new Map<string, { ms: number; launches: number }>();
let isArmed = false;

/** The machine with launches that are timed while `isArmed`. */
function timed(machine: CudaMachine): CudaMachine {
  const cu = machine.driver;
  const names = new Map<bigint, string>(), layouts = new Map<bigint, string>();
  const event = () => {
    const out = new BigUint64Array(1);
    cu.cuEventCreate(out, 0);
    return out[0]!;
  };
  let events: readonly [bigint, bigint] | undefined;
  const time = (name: string, stream: bigint, issue: () => number): number => {
    const code = issue();
    if (!isArmed || code !== 0) return code;
    const [start, end] = events ??= [event(), event()];
    cu.cuEventRecord(start, stream);
    issue();
    cu.cuEventRecord(end, stream);
    cu.cuEventSynchronize(end);
    const ms = new Float32Array(1);
    cu.cuEventElapsedTime(ms, start, end);
    const row = found.getOrInsertComputed(name, () => ({ ms: 0, launches: 0 }));
    row.ms += ms[0]!;
    row.launches++;
    return code;
  };
  return {
    ...machine,
    compiler: withCache(machine.compiler, `${cacheFolder((name) => Deno.env.get(name))}/cubin`),
    driver: {
      ...cu,
      cuModuleGetFunction(out, module, name) {
        const code = cu.cuModuleGetFunction(out, module, name);
        const bytes = name as Uint8Array;
        names.set(
          (out as BigUint64Array)[0]!,
          new TextDecoder().decode(bytes).replace(/\0.*/s, ""),
        );
        return code;
      },
      cuLaunchKernel: (...args) =>
        time(
          names.get(args[0] as bigint) ?? "kernel",
          args[8] as bigint,
          () => cu.cuLaunchKernel(...args),
        ),
    },
    products: () => {
      const lt = machine.products();
      return {
        ...lt,
        cublasLtMatrixLayoutCreate(out, type, rows, columns, leading) {
          const code = lt.cublasLtMatrixLayoutCreate(out, type, rows, columns, leading);
          layouts.set((out as BigUint64Array)[0]!, `${rows}x${columns}${type === 0 ? " f32" : ""}`);
          return code;
        },
        cublasLtMatmul: (...args) => {
          const [a, b, d] = [args[4], args[6], args[11]].map((at) => layouts.get(at as bigint));
          return time(
            `product ${d} of ${a}, ${b}`,
            args[15] as bigint,
            () => lt.cublasLtMatmul(...args),
          );
        },
      };
    },
  };
}

async function step(device: CudaDevice): Promise<void> {
  if (flags.what === "train" || flags.what === "peft") {
    const { trainer, batch } = await openBenchTrainer(device, config, tokens, flags.what);
    isArmed = true;
    await trainer.accumulate(batch);
    await trainer.update(1, { backbone: 1e-5, prefix: 1e-4, aggregator: 1e-4 });
    return;
  }
  const engine = new Engine(device, config, sharedWeights(config));
  const cache = engine.createCache(1, tokens + 1);
  const isDecode = flags.what === "decode";
  const ids = Array.from({ length: isDecode ? 1 : tokens }, (_, i) => i % 1000);
  isArmed = true;
  const start = [isDecode ? tokens : 0];
  await engine.forward(cache, { ids: [ids], start, select: [ids.length - 1] }, { head: "greedy" });
}

const device = new CudaDevice(timed(flags.emulated ? emulatedMachine() : openMachine()), {
  elements: "bf16",
});
await step(device);
device.close();
const rows = [...found].sort(([, a], [, b]) => b.ms - a.ms);
const total = rows.reduce((sum, [, { ms }]) => sum + ms, 0);
const table = new Table({
  head: ["what", "launches", "ms", "share"],
  style: { head: [], border: [] },
});
for (const [name, { ms, launches }] of rows.slice(0, Number(flags.top))) {
  table.push([name, launches, ms.toFixed(3), `${(100 * ms / total).toFixed(1)}%`]);
}
console.log(`${flags.what} of ${flags.shape}, P = ${flags.streams}: ${total.toFixed(2)} ms`);
console.log(table.toString());
