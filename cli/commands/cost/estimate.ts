/**
 * Plain estimates: one row per configuration, of generation or of training.
 *
 * Takes a setting; returns rows with the inputs, the totals and their parts under fixed names; a
 * table shows the few that a person compares, in GiB bytes.
 */
import type { Workload } from "../../../core/analysis/cost.ts";
import { exactCost } from "../../../core/analysis/cost_exact.ts";
import { paperCost, printedLine } from "../../../core/analysis/cost_paper.ts";
import { trainCost } from "../../../core/analysis/cost_train.ts";
import { peakTflops } from "../../../core/analysis/devices.ts";
import { UsageError } from "../../../core/base/errors.ts";
import type { Invocation } from "../../output/document.ts";
import type { Io } from "../../output/io.ts";
import { openReport } from "../../output/report.ts";
import { type Column, formatNumber, type Row } from "../../output/table.ts";
import {
  CapacityCheck,
  checkContext,
  echoOf,
  orDefault,
  prefixTokensOf,
  questionOf,
  type Setting,
  streamsOf,
  workloadsOf,
} from "./setting.ts";

/** Name and version of the rows' layout. */
export const SCHEMA = "parscale.cost/2";

/** Whether a person reads the result, who wants few columns. */
export function isReadable({ format }: Invocation): boolean {
  return format === "table" || format === "md";
}

/** A column in GiB for a field in bytes. */
export const gib = (key: string, title: string): Column => ({
  key: `${key}_gib`,
  title,
  digits: 3,
});

/** The row with each of its byte counts once more in GiB. */
export function withGib(row: Row): Row {
  const sizes = Object.entries(row).filter(([key, value]) =>
    key.endsWith("_bytes") && typeof value === "number"
  );
  return {
    ...row,
    ...Object.fromEntries(
      sizes.map(([key, value]) => [key.replace(/_bytes$/, "_gib"), (value as number) / 2 ** 30]),
    ),
  };
}

/** The line above a table that says what it is about. */
export function headline({ model, device, efficiency, values, widths }: Setting): string {
  const { shape } = model;
  const name = model.name ??
    `${shape.numLayers} layers of ${shape.hiddenSize} and ${shape.intermediateSize}`;
  const method = values.mode === "train" ? "a training step" : `method ${values.method}`;
  const tflops = peakTflops(device, Math.max(widths.weight, widths.activation));
  return `${name} on ${device.name}: ${formatNumber(device.bandwidthGbS)} GB/s x ` +
    `${efficiency.memory}, ${formatNumber(tflops)} TFLOPS x ${efficiency.flops}, ` +
    `${widths.weight} bits, ${method}`;
}

/** Writes the rows of `--mode infer` or `train`. */
export async function estimate(setting: Setting, io: Io, invocation: Invocation): Promise<void> {
  const training = setting.values.mode === "train";
  const rows = training ? trainRows(setting) : inferRows(setting);
  const columns = training ? TRAIN_COLUMNS : inferColumns(setting);
  const readable = isReadable(invocation);
  const check = new CapacityCheck(setting.device);
  using report = openReport(io, invocation, {
    schema: SCHEMA,
    ...(readable && { columns }),
  });
  const echo = readable ? {} : echoOf(setting);
  for (const row of rows) {
    const whole = { ...echo, ...row, fits: check.fits(row.memory_bytes as number) };
    report.row(readable ? { ...withGib(whole), fits: yesNo(whole.fits) } : whole);
  }
  // Only now, when no configuration can be refused any more.
  report.remark(`${headline(setting)}; sizes in GiB, times in seconds`);
  await report.finish();
  check.report(io);
}

/** A truth for people. */
function yesNo(value: boolean | null): string | null {
  return value === null ? null : value ? "yes" : "no";
}

function* inferRows(setting: Setting): Generator<Row> {
  for (const work of workloadsOf(setting)) yield inferRow(setting, work);
}

/** The workload, its cost and the parts. */
export function inferRow(setting: Setting, work: Workload): Row {
  const question = questionOf(setting, setting.model.shape, work);
  const inputs = {
    streams: work.streams,
    prefix_tokens: work.prefixTokens,
    batch: work.batch,
    input: work.input,
    output: work.output,
  };
  if (setting.values.method === "paper") {
    const cost = paperCost(question);
    return {
      ...inputs,
      memory_bytes: cost.memoryBytes,
      latency_s: cost.latencyS,
      weight_bytes: cost.weightBytes,
      kv_cache_bytes: cost.kvCacheBytes,
      aggregator_bytes: cost.aggregatorBytes,
      activation_bytes: cost.activationBytes,
      prefill_s: cost.prefillS,
      decode_step_s: cost.decodeStepS,
      aggregator_s: cost.aggregatorS,
      embedding_fix_s: cost.embeddingFixS,
      flops: cost.flops,
      printed: printedLine(cost),
    };
  }
  const cost = exactCost(question);
  return {
    ...inputs,
    memory_bytes: cost.memoryBytes,
    latency_s: cost.latencyS,
    weight_bytes: cost.weightBytes,
    kv_cache_bytes: cost.kvCacheBytes,
    activation_bytes: cost.activationBytes,
    prefill_s: cost.prefillS,
    decode_s: cost.decodeS,
    flops: cost.flops,
  };
}

/** The workload of a row. */
export const WORK_COLUMNS: readonly Column[] = [
  { key: "streams" },
  { key: "batch" },
  { key: "input" },
  { key: "output" },
];

function inferColumns({ values: { method } }: Setting): Column[] {
  const paper = method === "paper";
  return [
    ...WORK_COLUMNS,
    ...(paper ? [] : [gib("memory", "memory")]), // it is in the printed line
    gib("weight", "weights"),
    gib("kv_cache", "cache"),
    gib("activation", "activations"),
    ...(paper ? [] : [{ key: "latency_s", title: "latency" }]),
    { key: "prefill_s", title: "prefill" },
    paper ? { key: "decode_step_s", title: "step" } : { key: "decode_s", title: "decode" },
    { key: "fits" },
    ...(paper ? [{ key: "printed" }] : []),
  ];
}

const TRAIN_COLUMNS: readonly Column[] = [
  { key: "streams" },
  { key: "batch" },
  { key: "micro_batch", title: "micro-batch" },
  { key: "seq_len", title: "tokens" },
  gib("memory", "memory"),
  gib("weight", "weights"),
  gib("gradient", "gradients"),
  gib("moment", "moments"),
  gib("activation", "activations"),
  { key: "step_s", title: "step" },
  { key: "tokens_per_s", title: "tokens/s" },
  { key: "fits" },
];

function* trainRows(setting: Setting): Generator<Row> {
  const { values } = setting;
  const lengths = orDefault(values.seqLen, [2048]);
  checkContext(setting, Math.max(...lengths));
  for (const batch of values.batch) {
    for (const micro of orDefault(values.microBatch, [batch])) {
      if (batch % micro === 0) continue;
      throw new UsageError(
        `\`--micro-batch ${micro}\` does not divide \`--batch ${batch}\``,
      );
    }
  }
  for (const streams of streamsOf(setting)) {
    for (const batch of values.batch) {
      for (const microBatch of orDefault(values.microBatch, [batch])) {
        for (const seqLen of lengths) {
          yield trainRow(setting, { streams, batch, microBatch, seqLen });
        }
      }
    }
  }
}

interface TrainSizes {
  readonly streams: number;
  readonly batch: number;
  readonly microBatch: number;
  readonly seqLen: number;
}

function trainRow(setting: Setting, sizes: TrainSizes): Row {
  const { streams, batch, microBatch, seqLen } = sizes;
  const { trainParams = "all", recompute } = setting.values;
  const prefixTokens = prefixTokensOf(setting);
  const work = { streams, prefixTokens, batch, input: seqLen, output: 0 };
  const cost = trainCost({
    ...questionOf(setting, setting.model.shape, work),
    rows: batch,
    microBatch,
    seqLen,
    params: trainParams,
    recompute,
  });
  return {
    streams,
    prefix_tokens: prefixTokens,
    batch,
    micro_batch: microBatch,
    seq_len: seqLen,
    train_params: trainParams,
    recompute,
    trained_params: cost.trainedParams,
    memory_bytes: cost.memoryBytes,
    step_s: cost.stepS,
    weight_bytes: cost.weightBytes,
    gradient_bytes: cost.gradientBytes,
    moment_bytes: cost.momentBytes,
    activation_bytes: cost.activationBytes,
    forward_s: cost.forwardS,
    backward_s: cost.backwardS,
    optimizer_s: cost.optimizerS,
    tokens_per_s: batch * seqLen / cost.stepS,
    flops: cost.flops,
  };
}
