/**
 * From the flags of `parscale cost` to what is computed: model, hardware, widths and the lists whose
 * combinations are the rows. Weights are never opened, so a folder with a config alone will do.
 */
import type { CostShape } from "../../../core/analysis/cost.ts";
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
} from "../../../core/analysis/devices.ts";
import { DataError, UsageError } from "../../../core/base/errors.ts";
import { parseJsonObject, readJsonObject, show, statIfExists } from "../../../core/base/files.ts";
import { parseConfig } from "../../../core/checkpoint/config.ts";
import { isGguf } from "../../../core/checkpoint/model_files.ts";
import { CONFIG_FILE } from "../../../core/checkpoint/open.ts";
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
import { checkFigure } from "../../output/sink.ts";
import type { command } from "./flags.ts";
import { weightBitsOf } from "./weight_bits.ts";

/** Flags of the command. */
export type CostValues = ValuesOf<typeof command>;

/** The list of known hardware, or an estimate. */
export type CostPlan = { readonly kind: "list" } | EstimatePlan;

/** Everything that is asked, but for rates that have yet to be measured. */
export interface EstimatePlan
  extends Pick<CostValues, "mode" | "method" | "prefixCache" | "stepOverhead" | "batch"> {
  readonly kind: "rows" | "figure";
  readonly model: CostModel;
  readonly hardware: Hardware;
  readonly efficiency: Efficiencies;
  /** Bits per weight, activation and cache element. */
  readonly widths: { readonly weight: number; readonly activation: number; readonly cache: number };
  readonly streams: readonly number[];
  readonly prefixTokens: number;
  /** Prompt and new tokens of generation. */
  readonly lengths: readonly { readonly input: number; readonly output: number }[];
  readonly training: TrainingPlan;
  readonly figure: { readonly path: string | undefined; readonly match: CostValues["match"] };
  /** Device that `--hardware this-machine` measures. */
  readonly device: Pick<CostValues, "device" | "threads" | "unverified">;
}

/** Sizes of training steps. */
interface TrainingPlan {
  /** Rows per step, and rows at a time. */
  readonly batches: readonly { readonly batch: number; readonly microBatch: number }[];
  readonly seqLens: readonly number[];
  readonly trainParams: NonNullable<CostValues["trainParams"]>;
  readonly recompute: boolean;
}

/** A model as far as its cost goes. */
interface CostModel {
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

/** Hardware of the table, of a file, or new; this machine where `known` is absent. */
interface Hardware {
  readonly known: CostDevice | undefined;
  /** True unless it was asked for. */
  readonly isDefault: boolean;
  /** Values of flags, which replace the hardware's own. */
  readonly given: Partial<Pick<CostDevice, "bandwidthGbS" | "tflops" | "capacityGb">>;
}

/** Name under which the machine at hand is measured. */
export const THIS_MACHINE = "this-machine";

/** Finds model and hardware, and checks lengths. */
export async function planCost(
  values: CostValues,
  io: Io,
  invocation: Invocation,
): Promise<CostPlan> {
  if (values.arguments.length > 0) {
    refuseOthers(invocation, "`cost ls`");
    return { kind: "list" };
  }
  checkFigure(values.svg, invocation);
  const model = await openModel(values, io);
  const introduced = values.mode === "train" && values.trainParams === "introduced" &&
    invocation.origins["train-params"] === "flag";
  if (introduced && Math.max(model.streams, ...values.streams) === 1) {
    throw new UsageError("`--train-params introduced` needs more than one stream", {
      hints: ["add `--streams 4`"],
    });
  }
  const isOwn = values.hardware === THIS_MACHINE;
  const { bandwidth: bandwidthGbS, tflops, capacity: capacityGb } = values;
  const isTraining = values.mode === "train";
  const width = (given: string | undefined, stored?: number) =>
    Number(given ?? (isTraining ? 32 : stored ?? 16));
  const { mode, method, prefixCache, stepOverhead, batch, svg, match } = values;
  const { device, threads, unverified } = values;
  return {
    kind: svg === undefined ? "rows" : "figure",
    mode,
    method,
    model,
    hardware: {
      isDefault: values.hardware === undefined,
      known: isOwn ? undefined : await readHardware(values.hardware ?? DEFAULT_DEVICE, values),
      given: {
        ...(bandwidthGbS !== undefined && { bandwidthGbS }),
        ...(tflops !== undefined && { tflops }),
        ...(capacityGb !== undefined && { capacityGb }),
      },
    },
    efficiency: {
      flops: values.flopsEfficiency ?? (isOwn ? 1 : 0.7),
      memory: values.memoryEfficiency ?? (isOwn ? 1 : 0.9),
    },
    widths: {
      weight: width(values.weightBits, model.weightBits),
      activation: width(values.activationBits),
      cache: width(values.cacheBits),
    },
    prefixCache,
    stepOverhead,
    streams: svg === undefined
      ? orDefault(values.streams, [model.streams])
      : [...new Set([1, ...orDefault(values.streams, [1, 2, 4, 8])])].sort((a, b) => a - b),
    prefixTokens: values.prefixTokens ?? model.prefixTokens,
    batch,
    lengths: isTraining ? [] : lengthsOf(values, model),
    training: trainingOf(values, model),
    figure: { path: svg, match },
    device: { device, threads, unverified },
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

function trainingOf(values: CostValues, model: CostModel): TrainingPlan {
  const { batch, microBatch: micro, trainParams = "all", recompute } = values;
  if (values.mode === "infer") return { batches: [], seqLens: [], trainParams, recompute };
  const seqLens = orDefault(values.seqLen, [2048]);
  checkContext(model, Math.max(...seqLens));
  const batches = batch.flatMap((batch) =>
    orDefault(micro, [batch]).map((microBatch) => ({ batch, microBatch }))
  );
  const wrong = batches.find(({ batch, microBatch }) => batch % microBatch !== 0);
  if (wrong === undefined) return { batches, seqLens, trainParams, recompute };
  throw new UsageError(
    `\`--micro-batch ${wrong.microBatch}\` does not divide \`--batch ${wrong.batch}\``,
    { hints: ["pass a divisor of --batch"] },
  );
}

/** Refuses more tokens than the model has positions. */
function checkContext({ config, name }: CostModel, tokens: number): void {
  const { maxPositionEmbeddings: limit = Infinity } = config ?? {};
  if (tokens <= limit) return;
  throw new UsageError(
    `${tokens} tokens exceed the context of "${name}", ${limit}`,
    { hints: ["shorten --input, --output or --seq-len"] },
  );
}

/** Flags that describe a shape by hand. */
const SHAPE_FLAGS = [
  "hiddenSize",
  "intermediateSize",
  "numLayers",
  "numHeads",
  "numKvHeads",
  "headDim",
  "vocabSize",
] as const;

/** Finds the model; the figure has a default. */
async function openModel(values: CostValues, io: Io): Promise<CostModel> {
  const { model, configFrom, svg } = values;
  if (model !== undefined) return await openNamed(model, io);
  if (configFrom !== undefined) {
    const { json, path } = await readShape(configFrom);
    const size = findSize(path);
    return size ? plainModel(size) : configModel(configFrom, parseConfig(json, path), io);
  }
  const isShaped = SHAPE_FLAGS.some((key) => values[key] !== undefined);
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
    throw new UsageError(
      `\`cost\` needs \`--model\`, or ${missing.join(" and ")} of a shape`,
      {
        hints: [
          "pass --model with a folder, a config.json or a size such as 1.6B",
          "or --hidden-size and --intermediate-size, and others where they differ from the defaults",
        ],
      },
    );
  }
  if (numHeads % numKvHeads !== 0) {
    const divisors = Array.from({ length: numHeads }, (_, i) => i + 1)
      .filter((n) => numHeads % n === 0);
    throw new UsageError(
      `\`--num-kv-heads ${numKvHeads}\` does not divide the ${numHeads} heads`,
      { hints: [`pass one of ${divisors.join(", ")}`] },
    );
  }
  if (values.headDim === undefined && hiddenSize % numHeads !== 0) {
    throw new UsageError(
      `\`--hidden-size ${hiddenSize}\` is not a multiple of the ${numHeads} heads`,
      { hints: ["pass --num-heads, or --head-dim where the width of a head is its own"] },
    );
  }
  return familyShape({
    hiddenSize,
    intermediateSize,
    numAttentionHeads: numHeads,
    numKeyValueHeads: numKvHeads,
    ...(values.headDim !== undefined && { headDim: values.headDim }),
    ...(values.numLayers !== undefined && { numHiddenLayers: values.numLayers }),
    ...(values.vocabSize !== undefined && { vocabSize: values.vocabSize }),
    tieWordEmbeddings: !values.untied,
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
  throw new DataError(
    `"${model}" is not a model folder: it has no ${CONFIG_FILE}`,
    { hints: ["pass the folder that holds config.json, or the file itself"] },
  );
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

/** A name that is not known becomes hardware once its bandwidth and rate are given. */
async function readHardware(
  name: string,
  { bandwidth, tflops }: CostValues,
): Promise<CostDevice> {
  const known = findDevice(name);
  if (known !== undefined) return known;
  if (/\.json$|[/\\]/.test(name)) return await readHardwareFile(name);
  if (bandwidth !== undefined && tflops !== undefined) {
    const rates = { capacityGb: undefined, bandwidthGbS: bandwidth, tflops };
    return { name, ...rates, origin: "user", remark: "" };
  }
  const near = suggestionHint(name, [...DEVICES.map((device) => device.name), THIS_MACHINE]);
  throw new UsageError(
    `unknown hardware "${name}"`,
    {
      hints: [
        ...(near === undefined ? [] : [near]),
        "`parscale cost ls` prints the known ones; a new one needs --bandwidth and --tflops",
      ],
    },
  );
}

/** Keys of a hardware file with the fields they fill. */
const NUMBERS = [
  ["bandwidth_gb_s", "bandwidthGbS", true],
  ["tflops", "tflops", true],
  ["capacity_gib", "capacityGb", false],
  ["tflops_32", "tflops32", false],
  ["tops_8", "tops8", false],
  ["tops_4", "tops4", false],
] as const;

async function readHardwareFile(path: string): Promise<CostDevice> {
  const json = await readJsonObject(path);
  const keys = ["name", ...NUMBERS.map(([key]) => key)];
  const unknown = Object.keys(json).find((key) => !keys.includes(key));
  if (unknown !== undefined) {
    throw new DataError(
      `unknown key "${unknown}" in hardware file "${path}"`,
      { hints: [suggestionHint(unknown, keys) ?? "remove the key"] },
    );
  }
  const numbers = NUMBERS.flatMap(([key, field, required]) => {
    const value = json[key];
    if (value === undefined && !required) return [];
    if (typeof value === "number" && value > 0 && Number.isFinite(value)) return [[field, value]];
    throw new DataError(
      `${key} in hardware file "${path}" must be a positive number: ${show(value)}`,
    );
  });
  const rates = Object.fromEntries(numbers) as Pick<CostDevice, "bandwidthGbS" | "tflops">;
  const name = typeof json.name === "string" ? json.name : path;
  return { name, capacityGb: undefined, ...rates, origin: "user", remark: "" };
}

/** A plan with the hardware it is about. */
export interface Setting extends EstimatePlan {
  readonly on: CostDevice;
  readonly rates: Rates;
}
