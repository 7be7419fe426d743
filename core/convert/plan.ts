/**
 * Settles what a conversion will do, before anything is written or any weight is read.
 *
 * An error names the flag, the file or the field that stands in the way.
 */
import { DataError, UsageError } from "../base/errors.ts";
import { introducedValues } from "../model/init.ts";
import { type Aggregator, isParScale, type ModelConfig, plainConfig } from "../model/config.ts";
import { elementCount, type ParameterSpec, parameterSpecs } from "../model/parameters.ts";
import { configToJson } from "../checkpoint/config.ts";
import { requireFreeTarget } from "../storage/write_folder.ts";
import { isGgufName } from "../base/companions.ts";
import { type Checkpoint, openCheckpoint } from "../checkpoint/open.ts";
import { ELEMENT_BYTES, fromF32, type WeightType } from "../base/dtype.ts";
import { isQuantized } from "../quant/stored.ts";
import { type MergedModel, mergeModel } from "./merge.ts";
import { castTensor, type OutputTensor } from "../checkpoint/write.ts";

/** Options of a conversion, whose ranges and combinations the flags of `convert` hold. */
export interface ConversionOptions {
  /** Folder or GGUF file to read. */
  readonly model: string;
  /** Folder to make. */
  readonly out: string;
  /** P, from 2 to 64; not used by `strip`. */
  readonly streams?: number;
  /** M; 48 unless told. */
  readonly prefixTokens?: number;
  /** Kind of aggregation; dynamic unless told. */
  readonly aggregation?: Aggregator;
  /** ε; 0.1 unless told, as the paper trains with. */
  readonly smoothing?: number;
  readonly seed?: number;
  /** Write an adapter folder that holds the introduced tensors alone, as streams over a GGUF file are. */
  readonly introducedOnly?: boolean;
  /** Write the backbone of a GGUF file too. */
  readonly standalone?: boolean;
  /** Element type of the tensors written; that of the source, bf16 for quantized ones, unless told. */
  readonly dtype?: WeightType | undefined;
  /** Turn a ParScale folder back into a plain one. */
  readonly strip?: boolean;
  /** Fold the adapter and what a single stream adds to weights into one folder. */
  readonly merge?: boolean;
  /** Folder of introduced tensors over `model`; for `merge`. */
  readonly adapter?: string | undefined;
  /** Bytes. */
  readonly maxShardSize?: number;
  /** Write the Python file with which transformers opens the folder (default true). */
  readonly modelingCode?: boolean;
  readonly overwrite?: boolean;
}

/** A conversion that has been checked and only needs to be carried out. */
export interface ConversionPlan extends MergedModel {
  readonly options: ConversionOptions;
  readonly source: Checkpoint;
  /** Bytes of the tensors written. */
  readonly bytes: number;
  readonly introducedParams: number;
}

/** Checks a conversion and works out its result; writes nothing and reads no weights. */
export async function planConversion(asked: ConversionOptions): Promise<ConversionPlan> {
  const options = isGgufName(asked.model) && !asked.merge ? ofGguf(asked) : asked;
  const { adapter, streams, strip, merge } = options;
  if (!merge && !strip && streams === undefined) {
    throw new UsageError("`convert` needs `--streams`, `--strip`, `--merge` or `--quantize`", {
      hints: ["a plain folder already is a model with one stream", "try `--streams 4`"],
    });
  }
  const source = await openCheckpoint(options.model, { adapter, purpose: "`convert`" });
  if (!merge) checkSource(options, source);
  await requireFreeTarget(options.out, options.overwrite ? "checkpoint" : undefined);
  const dtype = options.dtype ?? (options.introducedOnly ? undefined : dtypeOfCodes(source));
  const typed = { ...options, dtype };
  const model = merge ? mergeModel(typed, source) : convertedModel(typed, source);
  const introduced = parameterSpecs(model.config).filter((spec) => spec.introduced);
  return {
    ...model,
    options,
    source,
    bytes: model.tensors.reduce((sum, tensor) => sum + tensor.byteLength, 0),
    introducedParams: introduced.reduce((sum, spec) => sum + elementCount(spec.shape), 0),
  };
}

/** Options for a GGUF file: it stays what it is, under an adapter, unless a whole folder is asked for. */
function ofGguf(asked: ConversionOptions): ConversionOptions {
  const { streams, introducedOnly, standalone, dtype } = asked;
  const isWhole = standalone || dtype !== undefined;
  if (streams !== undefined) return { ...asked, introducedOnly: introducedOnly || !isWhole };
  return introducedOnly ? asked : { ...asked, strip: true };
}

/**
 * Type to write quantized weights in: bf16, which keeps more than their 4 to 8 bits hold. Undefined for a
 * checkpoint without any.
 */
export function dtypeOfCodes({ tensors }: Checkpoint): WeightType | undefined {
  return tensors.values().some(isQuantized) ? "bf16" : undefined;
}

/** The model with streams added or removed. */
function convertedModel(options: ConversionOptions, source: Checkpoint): MergedModel {
  const M = options.prefixTokens ?? 48;
  const own = { ...source.config, dtype: options.dtype ?? source.config.dtype };
  const config: ModelConfig = options.strip ? plainConfig(own) : {
    ...own,
    streams: options.streams!,
    prefix: M > 0,
    prefixTokens: M,
    smoothing: options.smoothing ?? 0.1,
    aggregator: options.aggregation ?? "dynamic",
  };
  return {
    config,
    configJson: configToJson(config, source.configJson, {
      modelingCode: options.modelingCode !== false && !options.introducedOnly,
    }),
    tensors: parameterSpecs(config)
      .filter((spec) => spec.introduced || !options.introducedOnly)
      .map((spec) => outputTensor(spec, source, options)),
    folds: options.dtype !== undefined,
  };
}

/** Returns whether there is nothing to strip or to merge, so that the result is a copy. */
export function isPlainCopy({ options, source, folds }: ConversionPlan): boolean {
  if (options.merge) return !folds && source.adapter === undefined;
  if (folds || source.files.isGguf) return false;
  return !!options.strip && !String(source.configJson.model_type).endsWith("_parscale");
}

/** Backbone tensors come from the source, introduced ones from the seed in the type of the table. */
function outputTensor(
  spec: ParameterSpec,
  source: Checkpoint,
  { seed = 0, dtype: chosen }: ConversionOptions,
): OutputTensor {
  if (!spec.introduced) {
    const tensor = source.tensors.get(spec.name)!;
    return castTensor({ ...tensor, source: tensor }, chosen);
  }
  const dtype = chosen ?? source.config.dtype;
  const size = ELEMENT_BYTES[dtype];
  return {
    name: spec.name,
    dtype,
    shape: spec.shape,
    byteLength: elementCount(spec.shape) * size,
    source: (start, length) =>
      fromF32(introducedValues(spec, seed, start / size, length / size), dtype),
  };
}

/** The plan with other first values for some introduced tensors, by name. */
export function withValues(
  plan: ConversionPlan,
  values: ReadonlyMap<string, Float32Array<ArrayBuffer>>,
): ConversionPlan {
  const { dtype } = plan.config; // that of all introduced tensors
  const tensors = plan.tensors.map((tensor) => {
    const given = values.get(tensor.name);
    return given ? { ...tensor, source: fromF32(given, dtype) } : tensor;
  });
  return { ...plan, tensors };
}

function checkSource(options: ConversionOptions, source: Checkpoint): void {
  const { streams } = source.config;
  if (!options.strip && isParScale(source.config)) {
    const count = streams === 1 ? "1 stream" : `${streams} streams`;
    throw new DataError(`"${options.model}" already is a ParScale model with ${count}`, {
      hints: ["take its backbone first with `--strip`"],
    });
  }
}
