/**
 * `--measured`: the same rows really run here, next to the prediction.
 *
 * Weights are random, of the asked shape and in 32 bits, so that timing needs no checkpoint. A row
 * is a prefill in chunks and o − 1 decode steps; medians of several runs after one that is not
 * timed. Memory is the exact plan of the step, not a measurement; tests elsewhere hold plans to
 * what processes take.
 */
import type { Workload } from "../../../core/analysis/cost.ts";
import { UsageError } from "../../../core/base/errors.ts";
import { Engine } from "../../../core/generate/engine.ts";
import { bucketFor, type KvCache } from "../../../core/generate/kv_cache.ts";
import { timeDecode, timePrefill } from "../../../core/generate/timing.ts";
import type { ModelConfig } from "../../../core/model/config.ts";
import { elementCount, parameterSpecs } from "../../../core/model/parameters.ts";
import { centerOf } from "../../../core/base/statistics.ts";
import { type Device, openDevice } from "../../../core/runtime/mod.ts";
import type { Weights } from "../../../core/runtime/device.ts";
import { requireFreeMemory } from "../../framework/memory.ts";
import type { Invocation } from "../../output/document.ts";
import type { Io } from "../../output/io.ts";
import { openReport } from "../../output/report.ts";
import { deviceOptions } from "./calibrate.ts";
import { gib, headline, inferRow, isReadable, SCHEMA, withGib, WORK_COLUMNS } from "./estimate.ts";
import { echoOf, type Setting, workloadsOf } from "./setting.ts";

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

/** Runs every row and writes it with its prediction. */
export async function measureHere(
  setting: Setting,
  io: Io,
  invocation: Invocation,
): Promise<void> {
  const { values } = setting;
  const readable = isReadable(invocation);
  const device = await openDevice(values.device, deviceOptions(values));
  try {
    using report = openReport(io, invocation, {
      schema: SCHEMA,
      device: device.name,
      ...(readable && { columns: COLUMNS }),
    });
    const engines = new Map<number, Engine>();
    for (const work of workloadsOf(setting)) {
      const config = configOf(setting, work);
      const planBytes = requireMemory(device, config, work);
      const engine = engines.get(work.streams) ??
        new Engine(device, config, randomWeights(config));
      engines.set(work.streams, engine);
      io.detail(`measuring P = ${work.streams}, batch ${work.batch}`);
      const measured = await measureRow(engine, work, values.runs);
      const predicted = inferRow(setting, work);
      const latency = measured.prefillS + measured.decodeS;
      const row = {
        ...echoOf(setting),
        ...predicted,
        device: device.name,
        runs: values.runs,
        measured_latency_s: latency,
        measured_prefill_s: measured.prefillS,
        measured_decode_s: measured.decodeS,
        latency_ratio: latency / (predicted.latency_s as number),
        plan_bytes: planBytes,
      };
      report.row(readable ? withGib(row) : row);
    }
    report.remark(`${headline(setting)}; measured on ${device.name}, medians of ${values.runs}`);
    await report.finish();
  } finally {
    device.close();
  }
}

/** The model's config with the streams of a row, or that of a Qwen2 of the shape. */
function configOf({ model }: Setting, work: Workload): ModelConfig {
  const { shape } = model;
  if (shape.headDim % 2 !== 0 || !Number.isInteger(shape.headDim)) {
    throw new UsageError(
      `heads of odd width ${shape.headDim} cannot run: rotary embeddings need an even one`,
      { hints: ["pass --head-dim, or --num-heads so that widths are even"] },
    );
  }
  const plain: ModelConfig = model.config ?? {
    family: shape.headNorms ? "qwen3" : "qwen2",
    vocabSize: shape.vocabSize,
    hiddenSize: shape.hiddenSize,
    intermediateSize: shape.intermediateSize,
    numHiddenLayers: shape.numLayers,
    numAttentionHeads: shape.numHeads,
    numKeyValueHeads: shape.numKvHeads,
    headDim: shape.headDim,
    rmsNormEps: 1e-6,
    ropeTheta: 1e4,
    maxPositionEmbeddings: 2 ** 31 - 1,
    tieWordEmbeddings: shape.tied,
    attentionBias: shape.attentionBias,
    outputBias: shape.outputBias,
    mlpBias: false,
    dtype: "f32",
    eosTokenIds: [],
    streams: 1,
    prefix: false,
    loraRank: 0,
    bitfit: false,
    prefixTokens: 0,
    smoothing: 0.1,
    aggregator: shape.aggregator ?? "dynamic",
  };
  return {
    ...plain,
    loraRank: 0,
    bitfit: false,
    streams: work.streams,
    prefix: work.streams > 1 && work.prefixTokens > 0,
    prefixTokens: work.prefixTokens,
  };
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

interface RunTime {
  readonly prefillS: number;
  readonly decodeS: number;
}

async function measureRow(engine: Engine, work: Workload, runs: number): Promise<RunTime> {
  const cache = engine.createCache(work.batch, work.input + work.output);
  await timeRun(engine, cache, work); // compiles
  const times: RunTime[] = [];
  for (let run = 0; run < runs; run++) times.push(await timeRun(engine, cache, work));
  const median = (key: keyof RunTime) => centerOf(times.map((time) => time[key])).median;
  return { prefillS: median("prefillS"), decodeS: median("decodeS") };
}

/** One whole generation; the cache's slots are written anew. */
async function timeRun(engine: Engine, cache: KvCache, work: Workload): Promise<RunTime> {
  const prefillMs = await timePrefill(engine, cache, work.input);
  const steps = await timeDecode(engine, cache, work.input, work.output - 1);
  return { prefillS: prefillMs / 1000, decodeS: steps.reduce((sum, ms) => sum + ms, 0) / 1000 };
}
