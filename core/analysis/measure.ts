/**
 * Times of workloads on a device, and its bandwidth, beside which `cost.ts` puts predictions.
 *
 * A workload is a prefill in chunks and o − 1 decode steps. Bandwidth is the best of a few products of one
 * row, which read every weight once, as decoding does. Rates are achieved ones, so efficiencies default to 1.
 */
import { medianOf } from "../base/statistics.ts";
import { Engine } from "../generate/engine.ts";
import { bucketFor, type KvCache } from "../generate/kv_cache.ts";
import { timeDecode, timePrefill } from "../generate/timing.ts";
import { Builder } from "../graph/builder.ts";
import type { ModelConfig } from "../model/config.ts";
import { elementCount, parameterSpecs } from "../model/parameters.ts";
import { linear } from "../ops/linear.ts";
import type { Device, Weights } from "../runtime/device.ts";
import type { Workload } from "./cost.ts";
import { fastest } from "./peak.ts";

/** Small finite values; all tensors view one array, so that a model takes no memory twice. */
export function randomWeights(config: ModelConfig): Weights {
  const specs = parameterSpecs(config);
  const counts = specs.map(({ shape }) => elementCount(shape));
  const values = new Float32Array(counts.reduce((most, count) => Math.max(most, count), PERIOD));
  for (let i = 0; i < PERIOD; i++) values[i] = ((i * 7919) % PERIOD - (PERIOD >> 1)) / 30_000;
  for (let size = PERIOD; size < values.length; size *= 2) values.copyWithin(size, 0, size);
  return new Map(specs.map(({ name, shape }, i) => [
    name,
    { dtype: "f32" as const, shape, data: values.subarray(0, counts[i]!) },
  ]));
}

/** A prime, so that rows of a matrix are not alike. */
const PERIOD = 2003;

/** Bytes of the largest step of a workload, by its exact plan; weights need not exist. */
export function planBytes(device: Device, config: ModelConfig, work: Workload): number {
  const { batch, input, output } = work;
  // Planning reads types alone.
  const types = new Map(
    parameterSpecs(config).map(({ name, shape }) => [
      name,
      { dtype: "f32" as const, shape, path: "", offset: 0 },
    ]),
  );
  return new Engine(device, config, types).plan({
    batch,
    tokens: Math.min(input, device.traits.prefillChunk),
    capacity: bucketFor(device, input + output),
    selected: batch,
  }).totalBytes;
}

/** Median seconds of prefill and of all decode steps; the first run, which compiles, is left out. */
export async function measureWork(engine: Engine, work: Workload, runs: number) {
  using cache = engine.createCache(work.batch, work.input + work.output);
  await timeRun(engine, cache, work);
  const times: Awaited<ReturnType<typeof timeRun>>[] = [];
  for (let run = 0; run < runs; run++) times.push(await timeRun(engine, cache, work));
  return {
    prefillS: medianOf(times.map(({ prefillMs }) => prefillMs)) / 1000,
    decodeS: medianOf(times.map(({ decodeMs }) => decodeMs)) / 1000,
  };
}

/** Times one generation; it overwrites the cache of the one before. */
async function timeRun(engine: Engine, cache: KvCache, { input, output }: Workload) {
  const prefillMs = await timePrefill(engine, cache, input);
  const steps = await timeDecode(engine, cache, input, output - 1);
  return { prefillMs, decodeMs: steps.reduce((sum, ms) => sum + ms, 0) };
}

/** Sides of the matrix that is read: 128 MiB, more than caches of today hold. */
const MATRIX_ROWS = 8192, MATRIX_COLUMNS = 4096;
const RUNS = 6;

/** Bytes of weights per second that a product of one row reads. */
export async function measureBandwidth(device: Device): Promise<number> {
  const g = new Builder("bandwidth");
  const type = { dtype: "f32", shape: [MATRIX_ROWS, MATRIX_COLUMNS] } as const;
  const row = { dtype: "f32", shape: [1, MATRIX_COLUMNS] } as const;
  g.output("y", linear({ x: g.input("x", row), weight: g.parameter("w", type) }));
  const data = new Float32Array(MATRIX_ROWS * MATRIX_COLUMNS).map((_, i) => (i % 101 - 50) / 1000);
  const executable = await device.compile(g.build(), new Map([["w", { ...type, data }]]));
  const tensors = new Map([
    ["x", device.allocate(row)],
    ["y", device.allocate({ dtype: "f32", shape: [1, MATRIX_ROWS] })],
  ]);
  return data.byteLength / await fastest(RUNS, () => executable.run(tensors));
}
