/**
 * The model a cost is asked for: a folder, a `config.json`, a size of the paper, or shape flags.
 *
 * Returns the shape with what the model says about streams. Weights are never opened, so a folder
 * with a config alone will do; of a run the newest checkpoint counts.
 */
import { type CostShape, shapeOf } from "../../../core/analysis/cost.ts";
import {
  familyShape,
  findSize,
  HEADLINE_SIZE,
  PAPER_FAMILY,
} from "../../../core/analysis/cost_family.ts";
import { parseConfig } from "../../../core/checkpoint/config.ts";
import { parseJsonObject, readJsonObject, statIfExists } from "../../../core/base/files.ts";
import { resolveModel } from "../../../core/hub/model.ts";
import { isGguf, openModelFiles } from "../../../core/checkpoint/model_files.ts";
import { CONFIG_FILE } from "../../../core/checkpoint/open.ts";
import { readShape } from "../../../core/checkpoint/shape_source.ts";
import { lastCheckpoint } from "../../../core/checkpoint/run.ts";
import { DataError, UsageError } from "../../../core/base/errors.ts";
import type { ModelConfig } from "../../../core/model/config.ts";
import { suggestionHint } from "../../framework/suggest.ts";
import type { Io } from "../../output/io.ts";
import type { CostValues } from "./flags.ts";

/** A model as far as its cost goes. */
export interface CostModel {
  /** As it was named; undefined for shape flags. */
  readonly name: string | undefined;
  readonly shape: CostShape;
  readonly streams: number;
  readonly prefixTokens: number;
  /** Positions the model has; undefined where nothing limits them. */
  readonly maxPositions: number | undefined;
  /** For models with a config. */
  readonly config: ModelConfig | undefined;
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
export async function openCostModel(values: CostValues, io: Io): Promise<CostModel> {
  const isShaped = SHAPE_FLAGS.some((key) => values[key] !== undefined);
  if (values.model !== undefined) return await openNamed(values.model, io);
  if (values.configFrom !== undefined) return await openShape(values.configFrom, io);
  if (!isShaped && values.svg !== undefined) return sizeModel(findSize(HEADLINE_SIZE)!);
  return shapeModel(values);
}

function shapeModel(values: CostValues): CostModel {
  const { hiddenSize, intermediateSize, numHeads = 16, numKvHeads = 2 } = values;
  const missing = [
    hiddenSize === undefined && "`--hidden-size`",
    intermediateSize === undefined && "`--intermediate-size`",
  ].filter((flag) => flag !== false);
  if (hiddenSize === undefined || intermediateSize === undefined) {
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
    throw new UsageError(
      `\`--num-kv-heads ${numKvHeads}\` does not divide the ${numHeads} heads`,
      { hints: [`pass one of ${divisors(numHeads).join(", ")}`] },
    );
  }
  if (values.headDim === undefined && hiddenSize % numHeads !== 0) {
    throw new UsageError(
      `\`--hidden-size ${hiddenSize}\` is not a multiple of the ${numHeads} heads`,
      { hints: ["pass --num-heads, or --head-dim where the width of a head is its own"] },
    );
  }
  const shape = familyShape({
    hiddenSize,
    intermediateSize,
    numHeads,
    numKvHeads,
    headDim: values.headDim ?? hiddenSize / numHeads,
    ...(values.numLayers !== undefined && { numLayers: values.numLayers }),
    ...(values.vocabSize !== undefined && { vocabSize: values.vocabSize }),
    tied: !values.untied,
  });
  return { name: undefined, shape, ...PLAIN };
}

const PLAIN = { streams: 1, prefixTokens: 48, maxPositions: undefined, config: undefined };

function divisors(number: number): number[] {
  return Array.from({ length: number }, (_, i) => i + 1).filter((n) => number % n === 0);
}

function sizeModel({ name, shape }: { name: string; shape: CostShape }): CostModel {
  return { name, shape, ...PLAIN };
}

async function openNamed(model: string, io: Io): Promise<CostModel> {
  const config = model === "-" ? await readStdin(io) : await readNamed(model);
  return "family" in config ? configModel(model, config, io) : sizeModel(config);
}

/** A shape named as in `train --config-from`. */
async function openShape(name: string, io: Io): Promise<CostModel> {
  const { json, path } = await readShape(name);
  const size = findSize(path);
  return size ? sizeModel(size) : configModel(name, parseConfig(json, path), io);
}

function configModel(model: string, config: ModelConfig, io: Io): CostModel {
  if (config.loraRank > 0 || config.bitfit || (config.prefix !== config.streams > 1)) {
    io.warn(
      `the cost of "${model}" counts streams with prefixes alone; what else tells its streams ` +
        "apart is left out",
    );
  }
  return {
    name: model,
    shape: shapeOf(config),
    streams: config.streams,
    prefixTokens: config.prefix ? config.prefixTokens : config.streams > 1 ? 0 : 48,
    maxPositions: config.maxPositionEmbeddings,
    config,
  };
}

/** A config.json from a pipe. */
async function readStdin(io: Io): Promise<ModelConfig> {
  const bytes = new TextEncoder().encode(await io.readText("-"));
  return parseConfig(parseJsonObject(bytes, "stdin", "stdin"), "stdin");
}

/** The config of a file or folder, or a size of the paper. */
async function readNamed(
  model: string,
): Promise<ModelConfig | { readonly name: string; readonly shape: CostShape }> {
  const info = await statIfExists(model);
  const size = info === undefined ? findSize(model) : undefined;
  if (size !== undefined) return size;
  const path = info?.isFile ? model : await configPath(model);
  const json = await isGguf(path)
    ? await (await openModelFiles(path)).json(CONFIG_FILE)
    : await readJsonObject(path);
  return parseConfig(json, path);
}

/** Path of a `config.json`, or of the GGUF file that stands for it. */
async function configPath(model: string): Promise<string> {
  const folder = await resolveModel(model, { configOnly: true }).catch((error) => {
    throw error instanceof DataError ? unknownModel(model, error) : error;
  });
  if (await isGguf(folder)) return folder;
  const path = `${await lastCheckpoint(folder) ?? folder}/${CONFIG_FILE}`;
  if (await statIfExists(path)) return path;
  throw new DataError(
    `"${model}" is no model folder: it has no ${CONFIG_FILE}`,
    { hints: ["pass the folder that holds config.json, or the file itself"] },
  );
}

function unknownModel(model: string, error: DataError): DataError {
  const sizes = PAPER_FAMILY.map(({ name }) => name);
  const hint = suggestionHint(model, sizes);
  return new DataError(error.message, { hints: [...error.hints, ...(hint ? [hint] : [])] });
}
