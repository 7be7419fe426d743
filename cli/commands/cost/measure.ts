/**
 * Measurements of `parscale cost`: rows next to their prediction, and the rates of this machine, in 32 bits.
 * Weights are random, so that timing needs no checkpoint. Memory is the exact plan of the step, not a
 * measurement.
 */
import type { Workload } from "../../../core/analysis/cost.ts";
import type { CostDevice } from "../../../core/analysis/devices.ts";
import {
  measureBandwidth,
  measureWork,
  planBytes,
  randomWeights,
} from "../../../core/analysis/measure.ts";
import { measurePeak } from "../../../core/analysis/peak.ts";
import { UsageError } from "../../../core/base/errors.ts";
import { memoryInfo } from "../../../core/base/platform/mod.ts";
import { Engine } from "../../../core/generate/engine.ts";
import type { ModelConfig } from "../../../core/model/config.ts";
import { type Device, openDevice } from "../../../core/runtime/mod.ts";
import { requireFreeMemory } from "../../input/limits.ts";
import type { Invocation } from "../../output/document.ts";
import type { Io } from "../../output/io.ts";
import { Report } from "../../output/report.ts";
import type { Row } from "../../output/table.ts";
import { type EstimatePlan, type Setting, THIS_MACHINE } from "./plan.ts";
import { gib, headline, inputsOf, ms, WORK_COLUMNS } from "./show.ts";

const COLUMNS = [
  ...WORK_COLUMNS,
  ms("latency", "predicted ms"),
  ms("measured_latency", "measured ms"),
  { key: "latency_ratio", title: "measured/predicted", digits: 2 },
  ms("measured_prefill", "prefill ms"),
  ms("measured_decode", "decode ms"),
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

/** Bytes of the largest step, refused before anything is allocated when they are not there. */
function requireMemory(device: Device, config: ModelConfig, work: Workload): number {
  const bytes = planBytes(device, config, work);
  requireFreeMemory(
    bytes,
    `a batch of ${work.batch} with ${work.input} + ${work.output} tokens`,
    "leave --measured out, or take a smaller model, batch or context",
  );
  return bytes;
}

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
