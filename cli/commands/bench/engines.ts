/**
 * The engines of a benchmark: a model under every number of streams, on every device, in every kind of
 * matrices.
 *
 * Takes a checkpoint and the flags; returns engines with what their rows say about them. Introduced
 * tensors are part of the weights even where --adapter laid them over, as they are in a converted
 * checkpoint, because tensors that are bound at every step cannot be packed.
 */
import type { MatrixFormat } from "../../../core/base/quantize.ts";
import { type Checkpoint, weightsOf } from "../../../core/checkpoint/open.ts";
import { UsageError } from "../../../core/base/errors.ts";
import { Engine } from "../../../core/generate/engine.ts";
import { isParScale, type ModelConfig, plainConfig } from "../../../core/model/config.ts";
import { introducedValues } from "../../../core/model/init.ts";
import { parameterSpecs } from "../../../core/model/parameters.ts";
import { type Device, openDevice, quantizes } from "../../../core/runtime/mod.ts";
import type { Weights } from "../../../core/runtime/device.ts";
import type { CacheType } from "../../../core/runtime/traits.ts";
import { matrixFormat } from "../../../core/session/quantization.ts";
import type { BenchValues } from "./flags.ts";

/** Where prefixes and aggregator are from. */
export type Introduced = "own" | "random" | "none";

/** An engine and what rows say about it. */
export interface BenchEngine {
  readonly engine: Engine;
  readonly streams: number;
  readonly introduced: Introduced;
  /** As it was asked for, `cuda:1` for instance; auto is resolved. */
  readonly device: string;
  /** What it computes in. */
  readonly dtype: CacheType;
  /** How it keeps matrices: `dtype` where they are exact. */
  readonly weights: string;
}

/** Engines, and the devices that close with them. */
export class Engines implements Disposable {
  readonly all: BenchEngine[] = [];
  readonly #devices: Device[] = [];

  /** Opens one engine per combination, devices outermost; nothing is loaded or compiled yet. */
  static async open(checkpoint: Checkpoint, values: BenchValues): Promise<Engines> {
    const engines = new Engines();
    const models = streamsOf(checkpoint, values).map((streams) =>
      modelWith(checkpoint, streams, values.seed)
    );
    try {
      for (const choice of unique(values.device)) {
        const formats = unique(values.quantize).map((quantize) =>
          matrixFormat(checkpoint, { ...values, quantize, device: choice })
        );
        for (const format of formats) {
          const device = await engines.#open(choice, format, values);
          const { kind } = format;
          const dtype = device.cacheType;
          for (const { config, weights, introduced } of models) {
            engines.all.push({
              engine: new Engine(device, config, weights, { memoryLimit: values.memoryLimit }),
              streams: config.streams,
              introduced,
              device: choice === "auto" ? device.name : choice,
              dtype,
              weights: kind === "f32" ? dtype : kind,
            });
          }
        }
      }
      return engines;
    } catch (error) {
      engines[Symbol.dispose]();
      throw error;
    }
  }

  [Symbol.dispose](): void {
    for (const device of this.#devices) device.close();
  }

  async #open(
    choice: BenchValues["device"][number],
    format: MatrixFormat,
    values: BenchValues,
  ): Promise<Device> {
    const { kind } = format;
    const device = await openDevice(choice, { ...values, ...format, matrices: kind });
    this.#devices.push(device);
    if (kind === "f32" || quantizes(choice)) return device;
    throw new UsageError(
      `the ${choice} device cannot use ${kind} weights`,
      { hints: ["time --quantize q8 and q4 on --device cpu or webgpu"] },
    );
  }
}

/** Each value once, in the order of their first appearance. */
export function unique<T>(values: readonly T[]): T[] {
  return [...new Set(values)];
}

/** Numbers of streams asked for, or the model's own. */
export function streamsOf(checkpoint: Checkpoint, { streams }: BenchValues): number[] {
  return streams.length > 0 ? unique(streams) : [checkpoint.config.streams];
}

/** Whether the introduced tensors of so many streams are in the checkpoint. */
export function introducedOf({ config }: Checkpoint, streams: number): Introduced {
  if (streams === config.streams) return isParScale(config) ? "own" : "none";
  return streams === 1 ? "none" : "random";
}

interface Model {
  readonly config: ModelConfig;
  readonly weights: Weights;
  readonly introduced: Introduced;
}

/** The model under so many streams: as it is where it has them, else over the same backbone. */
function modelWith(checkpoint: Checkpoint, streams: number, seed: number): Model {
  const { config: own } = checkpoint;
  const stored = weightsOf(checkpoint);
  const introduced = introducedOf(checkpoint, streams);
  if (streams === own.streams) return { config: own, weights: stored, introduced };
  const config: ModelConfig = streams === 1
    ? plainConfig(own)
    : { ...own, streams, prefix: isParScale(own) ? own.prefix : true };
  const weights = new Map(
    parameterSpecs(config).map((spec) => [
      spec.name,
      spec.introduced
        ? { dtype: "f32" as const, shape: spec.shape, data: introducedValues(spec, seed) }
        : stored.get(spec.name)!,
    ]),
  );
  return { config, weights, introduced };
}
