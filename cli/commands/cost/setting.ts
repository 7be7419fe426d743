/**
 * What all rows of a run share: model, device, widths and method; and the questions to ask.
 *
 * Takes the values of the command; returns one `CostQuestion` per configuration, lazily, since
 * ranges multiply. Contexts are checked for all configurations before the first row.
 */
import type {
  CostQuestion,
  CostShape,
  ElementBytes,
  Workload,
} from "../../../core/analysis/cost.ts";
import {
  type CostDevice,
  type Efficiencies,
  type Rates,
  ratesOf,
} from "../../../core/analysis/devices.ts";
import { UsageError } from "../../../core/base/errors.ts";
import type { Io } from "../../output/io.ts";
import { isThisMachine, openCostDevice } from "./device.ts";
import { type CostModel, openCostModel } from "./model.ts";
import type { CostValues } from "./flags.ts";

/** Bits per weight, activation and cache element. */
export interface Widths {
  readonly weight: number;
  readonly activation: number;
  readonly cache: number;
}

/** Everything but the workload. */
export interface Setting {
  readonly values: CostValues;
  readonly model: CostModel;
  readonly device: CostDevice;
  readonly efficiency: Efficiencies;
  readonly widths: Widths;
  readonly bytes: ElementBytes;
  readonly rates: Rates;
}

/** Resolves model, device and widths. */
export async function openSetting(
  values: CostValues,
  io: Io,
  measure: () => Promise<CostDevice>,
): Promise<Setting> {
  const model = await openCostModel(values, io);
  const device = await openCostDevice(values, measure);
  const own = isThisMachine(values);
  const efficiency = {
    flops: values.flopsEfficiency ?? (own ? 1 : 0.7),
    memory: values.memoryEfficiency ?? (own ? 1 : 0.9),
  };
  const wide = values.mode === "train" || values.measured;
  const width = (given: string | undefined) => Number(given ?? (wide ? 32 : 16));
  const widths = {
    weight: width(values.weightBits),
    activation: width(values.activationBits),
    cache: width(values.cacheBits),
  };
  const bytes = {
    weight: widths.weight / 8,
    activation: widths.activation / 8,
    cache: widths.cache / 8,
  };
  const rates = ratesOf(device, efficiency, Math.max(widths.weight, widths.activation));
  return { values, model, device, efficiency, widths, bytes, rates };
}

/** Streams that are asked for, or else those of the model. */
export function streamsOf({ values, model }: Setting): readonly number[] {
  return orDefault(values.streams, [model.streams]);
}

/** Prefix tokens that are asked for. */
export function prefixTokensOf({ values, model }: Setting): number {
  return values.prefixTokens ?? model.prefixTokens;
}

/** One question in this setting. */
export function questionOf(setting: Setting, shape: CostShape, work: Workload): CostQuestion {
  const { rates, bytes, values } = setting;
  return {
    shape,
    work,
    rates,
    bytes,
    copiesPrefix: values.prefixCache === "copied",
    stepOverheadS: values.stepOverhead,
  };
}

/** Prompt and output lengths of a plain run: every input with every output. */
export function* workloadsOf(setting: Setting): Generator<Workload> {
  const { values } = setting;
  const inputs = orDefault(values.input, [64]), outputs = orDefault(values.output, [64]);
  checkContext(setting, Math.max(...inputs) + Math.max(...outputs));
  const prefixTokens = prefixTokensOf(setting);
  for (const streams of streamsOf(setting)) {
    for (const batch of values.batch) {
      for (const input of inputs) {
        for (const output of outputs) yield { streams, prefixTokens, batch, input, output };
      }
    }
  }
}

/** The list, or another when it is empty. */
export function orDefault(list: readonly number[], otherwise: readonly number[]) {
  return list.length > 0 ? list : otherwise;
}

/** Refuses more tokens than the model has positions. */
export function checkContext({ model }: Setting, tokens: number): void {
  const { maxPositions, name } = model;
  if (maxPositions === undefined || tokens <= maxPositions) return;
  throw new UsageError(
    `${tokens} tokens exceed the context of "${name}", ${maxPositions}`,
    { hints: ["shorten --input, --output or --seq-len"] },
  );
}

/** The inputs of a row under their JSON names, without the workload. */
export function echoOf(setting: Setting): Record<string, unknown> {
  const { values, model, device, efficiency, widths } = setting;
  const { shape } = model;
  const exact = values.method === "exact" && values.mode === "infer";
  return {
    model: model.name ?? null,
    mode: values.mode,
    method: values.method,
    hidden_size: shape.hiddenSize,
    intermediate_size: shape.intermediateSize,
    num_layers: shape.numLayers,
    num_heads: shape.numHeads,
    num_kv_heads: shape.numKvHeads,
    head_dim: shape.headDim,
    vocab_size: shape.vocabSize,
    tie_word_embeddings: shape.tied,
    hardware: device.name,
    bandwidth_gb_s: device.bandwidthGbS,
    tflops: device.tflops,
    capacity_gib: device.capacityGb ?? null,
    flops_efficiency: efficiency.flops,
    memory_efficiency: efficiency.memory,
    weight_bits: widths.weight,
    activation_bits: widths.activation,
    cache_bits: widths.cache,
    prefix_cache: exact ? values.prefixCache : null,
    step_overhead_s: exact ? values.stepOverhead : null,
  };
}

/** Counts what exceeds the device, and says so at the end. */
export class CapacityCheck {
  #rows = 0;
  #over = 0;
  #largest = 0;

  /** Nothing is counted yet. */
  constructor(readonly device: CostDevice) {}

  /** Whether these bytes fit; null where it is not known. */
  fits(bytes: number): boolean | null {
    const { capacityGb } = this.device;
    if (capacityGb === undefined) return null;
    const fits = bytes <= capacityGb * 2 ** 30;
    this.#rows++;
    if (!fits) this.#over++;
    this.#largest = Math.max(this.#largest, bytes);
    return fits;
  }

  /** Warns when anything did not fit. */
  report(io: Io): void {
    if (this.#over === 0) return;
    const { name, capacityGb } = this.device;
    const which = this.#rows === 1
      ? "the configuration needs"
      : `${this.#over} of ${this.#rows} configurations need`;
    const most = (this.#largest / 2 ** 30).toFixed(1);
    io.warn(
      `${which} up to ${most} GiB, more than the ${capacityGb} GiB of ${name}`,
      "choose larger --hardware, fewer sequences or fewer bits; -q hides this",
    );
  }
}
