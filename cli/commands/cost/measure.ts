/**
 * Measurements of `parscale cost`: rows next to their prediction, and the rates of this machine, in 32 bits.
 * Weights are random, so that timing needs no checkpoint. A row is a prefill in chunks and o − 1 decode
 * steps; memory is the exact plan of the step, not a measurement. Arithmetic of this machine is the best of a
 * few large products (`core/train/peak.ts`); bandwidth is the best of a few products of one row, which read
 * every weight once, as decoding does. These are achieved rates, so efficiencies default to 1.
 */
import type { Workload } from "../../../core/analysis/cost.ts";
import type { CostDevice } from "../../../core/analysis/devices.ts";
import { UsageError } from "../../../core/base/errors.ts";
import { memoryInfo } from "../../../core/base/platform/mod.ts";
import { medianOf } from "../../../core/base/statistics.ts";
import { Engine } from "../../../core/generate/engine.ts";
import { bucketFor, type KvCache } from "../../../core/generate/kv_cache.ts";
import { timeDecode, timePrefill } from "../../../core/generate/timing.ts";
import { Builder } from "../../../core/graph/builder.ts";
import type { ModelConfig } from "../../../core/model/config.ts";
import { elementCount, parameterSpecs } from "../../../core/model/parameters.ts";
import { linear } from "../../../core/ops/linear.ts";
import type { Weights } from "../../../core/runtime/device.ts";
import { type Device, openDevice } from "../../../core/runtime/mod.ts";
import { measurePeak } from "../../../core/train/peak.ts";
import { requireFreeMemory } from "../../input/limits.ts";
import type { Invocation } from "../../output/document.ts";
import type { Io } from "../../output/io.ts";
import { Report } from "../../output/report.ts";
import type { Row } from "../../output/table.ts";
import { type EstimatePlan, type Setting, THIS_MACHINE } from "./plan.ts";
import { gib, headline, inputsOf, WORK_COLUMNS } from "./show.ts";

const COLUMNS = [
  ...WORK_COLUMNS,
  { key: "latency_s", title: "predicted s" },
  { key: "measured_latency_s", title: "measured s" },
  { key: "latency_ratio", title: "measured/predicted", digits: 2 },
  { key: "measured_prefill_s", title: "prefill s" },
  { key: "measured_decode_s", title: "decode s" },
  gib("memory", "predicted GiB"),
  gib("plan", "planned GiB"),
];

/** Runs every workload and writes it with its prediction. */
export async function measureRows(
  setting: Setting,
  works: Iterable<Workload>,
  predict: (work: Workload) => Row,
  io: Io,
  invocation: Invocation,
): Promise<void> {
  const { runs } = setting.device;
  const open = () => openDevice(setting.device.device, setting.device);
  let device = await open(), engine: Engine | undefined;
  try {
    const inputs = inputsOf(setting);
    using report = new Report(io, invocation, {
      schema: "parscale.cost/2",
      device: device.name,
      shown: COLUMNS,
    });
    for (const work of works) {
      const config = configOf(setting, work);
      if (engine !== undefined && engine.config.streams !== work.streams) {
        // Rows of one P stand together: with the device its weights are freed.
        engine = undefined;
        device.close();
        device = await open();
      }
      const planBytes = requireMemory(device, config, work);
      engine ??= new Engine(device, config, randomWeights(config));
      io.detail(`measuring P = ${work.streams}, batch ${work.batch}`);
      const { prefillS, decodeS } = await measureWork(engine, work, runs);
      const predicted = predict(work);
      const latency = prefillS + decodeS;
      report.row({
        ...inputs,
        ...predicted,
        device: device.name,
        runs,
        measured_latency_s: latency,
        measured_prefill_s: prefillS,
        measured_decode_s: decodeS,
        latency_ratio: latency / (predicted.latency_s as number),
        plan_bytes: planBytes,
      });
    }
    report.remark(`${headline(setting)}; measured on ${device.name}, medians of ${runs}`);
    await report.finish();
  } finally {
    device.close();
  }
}

/** The model's config with the streams of a row, or that of a Qwen2 of the shape. */
function configOf({ model: { config, shape } }: Setting, work: Workload): ModelConfig {
  if (shape.headDim % 2 !== 0 || !Number.isInteger(shape.headDim)) {
    throw new UsageError(
      `heads of odd width ${shape.headDim} cannot run: rotary embeddings need an even one`,
      { hints: ["pass --head-dim, or --num-heads so that widths are even"] },
    );
  }
  const plain = config ?? {
    ...shape,
    rmsNormEps: 1e-6,
    ropeTheta: 1e4,
    maxPositionEmbeddings: 2 ** 31 - 1,
    dtype: "f32",
    eosTokenIds: [],
    smoothing: 0.1,
  };
  const { streams, prefixTokens } = work;
  const prefix = streams > 1 && prefixTokens > 0;
  return { ...plain, loraRank: 0, bitfit: false, streams, prefix, prefixTokens };
}

/** Small finite values; all tensors look at one array, so that a model takes no memory twice. */
function randomWeights(config: ModelConfig): Weights {
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

/** Bytes of the largest step, refused before anything is allocated when they are not there. */
function requireMemory(device: Device, config: ModelConfig, work: Workload): number {
  const { batch, input, output } = work;
  // Planning looks at types alone, so the weights need not exist yet.
  const types = new Map(
    parameterSpecs(config).map(({ name, shape }) => [
      name,
      { dtype: "f32" as const, shape, path: "", offset: 0 },
    ]),
  );
  const { totalBytes } = new Engine(device, config, types).plan({
    batch,
    tokens: Math.min(input, device.traits.prefillChunk),
    capacity: bucketFor(device, input + output),
    selected: batch,
  });
  requireFreeMemory(
    totalBytes,
    `a batch of ${batch} with ${input} + ${output} tokens`,
    "leave --measured out, or take a smaller model, batch or context",
  );
  return totalBytes;
}

/** Median seconds of prefill and of all decode steps; the first run, which compiles, counts not. */
async function measureWork(engine: Engine, work: Workload, runs: number) {
  using cache = engine.createCache(work.batch, work.input + work.output);
  await timeRun(engine, cache, work);
  const times: Awaited<ReturnType<typeof timeRun>>[] = [];
  for (let run = 0; run < runs; run++) times.push(await timeRun(engine, cache, work));
  return {
    prefillS: medianOf(times.map(({ prefillMs }) => prefillMs)) / 1000,
    decodeS: medianOf(times.map(({ decodeMs }) => decodeMs)) / 1000,
  };
}

/** One whole generation; the cache's slots are written anew. */
async function timeRun(engine: Engine, cache: KvCache, { input, output }: Workload) {
  const prefillMs = await timePrefill(engine, cache, input);
  const steps = await timeDecode(engine, cache, input, output - 1);
  return { prefillMs, decodeMs: steps.reduce((sum, ms) => sum + ms, 0) };
}

/** Sides of the matrix that is read: 128 MiB, more than caches of today hold. */
const MATRIX_ROWS = 8192, MATRIX_COLUMNS = 4096;
const RUNS = 6;

/** Measures arithmetic and bandwidth; takes about a second on the processor. */
export async function calibrate({ device: asked }: EstimatePlan, io: Io): Promise<CostDevice> {
  io.detail("measuring this machine");
  const device = await openDevice(asked.device, asked);
  try {
    const tflops = await measurePeak(device) / 1e12;
    return {
      name: THIS_MACHINE,
      capacityGb: memoryInfo().total / 2 ** 30,
      bandwidthGbS: await measureBandwidth(device) / 1e9,
      tflops,
      tflops32: tflops,
      origin: "measured",
      remark: device.name,
    };
  } finally {
    device.close();
  }
}

/** Bytes of weights per second that a product of one row reads. */
async function measureBandwidth(device: Device): Promise<number> {
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
  let best = Infinity;
  for (let run = 0; run < RUNS; run++) {
    const began = performance.now();
    await executable.run(tensors);
    best = Math.min(best, performance.now() - began);
  }
  return data.byteLength / (best / 1000);
}
