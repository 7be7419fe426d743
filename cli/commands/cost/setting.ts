/**
 * Model, hardware and work of `parscale cost`. Weights are never opened, so a folder with a config alone
 * will do.
 */
import { type CostShape, countShape } from "../../../core/analysis/cost.ts";
import {
  familyShape,
  findSize,
  HEADLINE_SIZE,
  PAPER_FAMILY,
} from "../../../core/analysis/cost_family.ts";
import {
  type CostDevice,
  DEFAULT_DEVICE,
  DEVICES,
  type Efficiencies,
  findDevice,
  type Rates,
  ratesOf,
} from "../../../core/analysis/devices.ts";
import type { ModelFiles } from "../../../core/base/companions.ts";
import { DataError, UsageError } from "../../../core/base/errors.ts";
import {
  isObject,
  type JsonObject,
  parseJsonObject,
  statIfExists,
} from "../../../core/base/files.ts";
import { parseConfig } from "../../../core/checkpoint/config.ts";
import { isGguf } from "../../../core/checkpoint/model_files.ts";
import { CONFIG_FILE } from "../../../core/checkpoint/open.ts";
import { QUANTIZATION_KEY } from "../../../core/checkpoint/quantization.ts";
import { lastCheckpoint } from "../../../core/checkpoint/run.ts";
import { findQwen35, QWEN35_NAMES } from "../../../core/checkpoint/qwen35_shapes.ts";
import { readShape } from "../../../core/checkpoint/shape_source.ts";
import { resolveModel } from "../../../core/hub/model.ts";
import type { ModelConfig } from "../../../core/model/config.ts";
import type { ValuesOf } from "../../framework/command.ts";
import { suggestionHint } from "../../framework/suggest.ts";
import { refuseOthers } from "../../input/forms.ts";
import type { Invocation } from "../../output/document.ts";
import type { Io } from "../../output/io.ts";
import type { command } from "./flags.ts";

/** Flags of the command. */
export type CostValues = ValuesOf<typeof command>;

/** An estimate: its model, its work and the hardware it is for. */
export interface Setting extends Work {
  readonly values: CostValues;
  readonly model: CostModel;
  readonly on: CostDevice;
  readonly rates: Rates;
  readonly efficiency: Efficiencies;
  /** Bits per weight, activation and cache element. */
  readonly widths: { readonly weight: number; readonly activation: number; readonly cache: number };
}

/** The lists whose combinations are the rows. */
export interface Work {
  readonly streams: readonly number[];
  readonly prefixTokens: number;
  /** Prompt and new tokens of generation. */
  readonly lengths: readonly { readonly input: number; readonly output: number }[];
}

/** A model as far as its cost goes. */
export interface CostModel {
  /** As it was named; undefined for shape flags. */
  readonly name: string | undefined;
  readonly shape: CostShape;
  readonly streams: number;
  readonly prefixTokens: number;
  /** Of models with a config file. */
  readonly config: ModelConfig | undefined;
  /** Bits per weight of a file with quantized ones. */
  readonly weightBits?: number | undefined;
}

/** Name under which the machine at hand is measured. */
export const THIS_MACHINE = "this-machine";

/** Refuses flags beside `cost ls`. */
export function check(values: CostValues, invocation: Invocation): void {
  if (values.arguments.length > 0) refuseOthers(invocation, "`cost ls`");
}

/** Resolves the lists for a model, and checks lengths. */
export function workOf(values: CostValues, model: CostModel): Work {
  const { svg } = values;
  return {
    streams: svg === undefined
      ? orDefault(values.streams, [model.streams])
      : [...new Set([1, ...orDefault(values.streams, [1, 2, 4, 8])])].sort((a, b) => a - b),
    prefixTokens: values.prefixTokens ?? model.prefixTokens,
    lengths: lengthsOf(values, model),
  };
}

/** Applies hardware flags; `--tflops` also scales the 4-, 8- and 32-bit rates. */
export function settingOf(
  values: CostValues,
  model: CostModel,
  work: Work,
  hardware: CostDevice,
): Setting {
  const { bandwidth, tflops, capacity } = values;
  const width = (given: string | undefined, stored?: number) => Number(given ?? stored ?? 16);
  const weight = width(values.weightBits, model.weightBits);
  const activation = width(values.activationBits);
  const { tflops32: _32, tops8: _8, tops4: _4, ...plain } = hardware;
  const on: CostDevice = {
    ...(tflops === undefined ? hardware : { ...plain, tflops }),
    ...(bandwidth !== undefined && { bandwidthGbS: bandwidth }),
    ...(capacity !== undefined && { capacityGb: capacity }),
  };
  const isOwn = values.hardware === THIS_MACHINE;
  const efficiency = {
    flops: values.flopsEfficiency ?? (isOwn ? 1 : 0.7),
    memory: values.memoryEfficiency ?? (isOwn ? 1 : 0.9),
  };
  return {
    ...work,
    values,
    model,
    on,
    rates: ratesOf(on, efficiency, Math.max(weight, activation)),
    efficiency,
    widths: { weight, activation, cache: width(values.cacheBits) },
  };
}

/** The list, or another when it is empty. */
function orDefault(list: readonly number[], otherwise: readonly number[]): readonly number[] {
  return list.length > 0 ? list : otherwise;
}

/** The paper's lengths: its first figure has 128 to 1024 tokens in all, half of them prompt. */
const FIGURE_LENGTHS = [64, 128, 256, 512];

/** Every input with every output; in the figure the output is as long as the input unless given. */
function lengthsOf({ input, output, svg }: CostValues, model: CostModel) {
  const isFigure = svg !== undefined;
  const inputs = orDefault(input, isFigure && output.length === 0 ? FIGURE_LENGTHS : [64]);
  const lengths = inputs.flatMap((input) =>
    orDefault(output, [isFigure ? input : 64]).map((output) => ({ input, output }))
  );
  checkContext(model, lengths.reduce((most, one) => Math.max(most, one.input + one.output), 0));
  return lengths;
}

/** Refuses more tokens than the model has positions. */
function checkContext({ config, name }: CostModel, tokens: number): void {
  const { maxPositionEmbeddings: limit = Infinity } = config ?? {};
  if (tokens <= limit) return;
  throw new UsageError(`${tokens} tokens exceed the context of "${name}", ${limit}`, {
    hints: ["shorten --input or --output"],
  });
}

/** Finds the model; the figure has a default. */
export async function openModel(values: CostValues, io: Io): Promise<CostModel> {
  const { model, configFrom, svg } = values;
  if (model !== undefined) return await openNamed(model, io);
  if (configFrom !== undefined) {
    const { json, path } = await readShape(configFrom);
    const size = findSize(path);
    return size ? plainModel(size) : configModel(configFrom, parseConfig(json, path), io);
  }
  const isShaped = values.hiddenSize !== undefined || values.intermediateSize !== undefined;
  if (svg !== undefined && !isShaped) return plainModel(findSize(HEADLINE_SIZE)!);
  return plainModel({ name: undefined, shape: shapeOfFlags(values) });
}

/** A model of one stream, whose context nothing limits. */
function plainModel({ name, shape }: Pick<CostModel, "name" | "shape">): CostModel {
  return { name, shape, streams: 1, prefixTokens: 48, config: undefined };
}

function shapeOfFlags(values: CostValues): CostShape {
  const { hiddenSize, intermediateSize, numHeads = 16, numKvHeads = 2 } = values;
  if (hiddenSize === undefined || intermediateSize === undefined) {
    const missing = [
      ...(hiddenSize === undefined ? ["`--hidden-size`"] : []),
      ...(intermediateSize === undefined ? ["`--intermediate-size`"] : []),
    ];
    throw new UsageError(`\`cost\` needs \`--model\`, or ${missing.join(" and ")} of a shape`, {
      hints: [
        "pass --model with a folder, a config.json or a size such as 1.6B",
        "or --hidden-size and --intermediate-size, and others where they differ from the defaults",
      ],
    });
  }
  if (numHeads % numKvHeads !== 0) {
    throw new UsageError(`\`--num-kv-heads ${numKvHeads}\` does not divide the ${numHeads} heads`, {
      hints: ["pass a divisor of --num-heads"],
    });
  }
  if (hiddenSize % numHeads !== 0) {
    throw new UsageError(
      `\`--hidden-size ${hiddenSize}\` is not a multiple of the ${numHeads} heads`,
      { hints: ["pass --num-heads, or a config.json where the width of a head is its own"] },
    );
  }
  return familyShape({
    hiddenSize,
    intermediateSize,
    numAttentionHeads: numHeads,
    numKeyValueHeads: numKvHeads,
    ...(values.numLayers !== undefined && { numHiddenLayers: values.numLayers }),
    ...(values.vocabSize !== undefined && { vocabSize: values.vocabSize }),
  });
}

/** The config of stdin, a file or a folder, or a size of the paper. */
async function openNamed(model: string, io: Io): Promise<CostModel> {
  if (model === "-") {
    const bytes = new TextEncoder().encode(await io.readText("-"));
    const json = parseJsonObject(bytes, "stdin", "stdin");
    return configModel(model, parseConfig(json, "stdin"), io);
  }
  const info = await statIfExists(model);
  const size = info === undefined ? findSize(model) : undefined;
  if (size !== undefined) return plainModel(size);
  const isNamed = info === undefined && findQwen35(model) !== undefined;
  const source = info?.isFile || isNamed ? model : await configPath(model);
  const { json, path, files } = await readShape(source);
  const config = parseConfig(json, path);
  const weightBits = await weightBitsOf(json, config, files);
  return { ...configModel(model, config, io), weightBits };
}

/** Bits of a GGUF file, or of a folder's matrices; undefined for full precision, and for a file of several. */
async function weightBitsOf(
  { [QUANTIZATION_KEY]: entry }: JsonObject,
  config: ModelConfig,
  files: ModelFiles | undefined,
): Promise<number | undefined> {
  if (!files?.isGguf) return isObject(entry) ? Number(entry.bits) || undefined : undefined;
  if (/-of-\d+\.gguf$/i.test(files.model)) return undefined;
  return 8 * (await Deno.stat(files.model)).size / countShape(config, 1, 0).total;
}

/** The config in a folder, of a run that of its newest checkpoint; or the GGUF file that stands for it. */
async function configPath(model: string): Promise<string> {
  const folder = await resolveModel(model, { configOnly: true }).catch((error) => {
    if (!(error instanceof DataError)) throw error;
    const hint = suggestionHint(model, [
      ...PAPER_FAMILY.map(({ name }) => name),
      ...QWEN35_NAMES,
    ]);
    throw new DataError(error.message, { hints: [...error.hints, ...(hint ? [hint] : [])] });
  });
  if (await isGguf(folder)) return folder;
  const path = `${await lastCheckpoint(folder) ?? folder}/${CONFIG_FILE}`;
  if (await statIfExists(path)) return path;
  throw new DataError(`"${model}" is not a model folder: it has no ${CONFIG_FILE}`, {
    hints: ["pass the folder that holds config.json, or the file itself"],
  });
}

function configModel(name: string, config: ModelConfig, io: Io): CostModel {
  const { streams, prefix, prefixTokens } = config;
  if (config.loraRank > 0 || config.bitfit || (prefix !== streams > 1)) {
    io.warn(
      `the cost of "${name}" counts streams with prefixes alone; what else tells its streams ` +
        "apart is left out",
    );
  }
  return {
    name,
    shape: config,
    streams,
    prefixTokens: prefix ? prefixTokens : streams > 1 ? 0 : 48,
    config,
  };
}

/** Finds the hardware; a name that is not known becomes hardware once its bandwidth and rate are given. */
export function findHardware({ hardware, bandwidth, tflops }: CostValues): CostDevice {
  const name = hardware ?? DEFAULT_DEVICE, known = findDevice(name);
  if (known !== undefined) return known;
  if (bandwidth !== undefined && tflops !== undefined) {
    const rates = { capacityGb: undefined, bandwidthGbS: bandwidth, tflops };
    return { name, ...rates, origin: "user", remark: "" };
  }
  const near = suggestionHint(name, [...DEVICES.map((device) => device.name), THIS_MACHINE]);
  throw new UsageError(`unknown hardware "${name}"`, {
    hints: [
      ...(near === undefined ? [] : [near]),
      "`parscale cost ls` prints the known ones; a new one needs --bandwidth and --tflops",
    ],
  });
}
