/**
 * The model a run starts from: a checkpoint, a checkpoint that is given streams, or nothing but a
 * configuration.
 *
 * Takes what the user chose; returns the config of the model to be trained and the first value of
 * each of its parameters. What cannot be (other streams than the checkpoint has, no trainable
 * parameter) is refused here, before anything is allocated.
 */
import type { ModelFiles } from "../base/companions.ts";
import { openModelFiles } from "../checkpoint/model_files.ts";
import { backboneHash } from "../checkpoint/backbone.ts";
import { type Checkpoint, openCheckpoint } from "../checkpoint/open.ts";
import { configToJson, parseConfig } from "../checkpoint/config.ts";
import { ropeToJson } from "../checkpoint/rope_config.ts";
import { dtypeOfCodes } from "../convert/plan.ts";
import { readShape } from "../checkpoint/shape_source.ts";
import type { JsonObject } from "../base/files.ts";
import { readTensor } from "../checkpoint/read.ts";
import { UsageError } from "../base/errors.ts";
import { isParScale, type ModelConfig, plainConfig, type WeightType } from "../model/config.ts";
import { introducedValues, scratchValues } from "../model/init.ts";
import { elementCount, type ParameterSpec, parameterSpecs } from "../model/parameters.ts";
import { reparameterized, reparameterSpecs, reparameterValues } from "../model/reparameterize.ts";
import type { Substitute } from "../model/loss.ts";
import { type Aggregation, aggregatorFor, isFixed, trainableSpecs } from "./trainable.ts";

/** Input transformation that tells streams apart. */
export type Transform = "prefix" | "lora" | "bitfit";

/** The user's choices; undefined leaves a property as the checkpoint has it. */
export interface ModelChoices {
  /** Folder of the checkpoint; undefined for a model from scratch. */
  readonly model?: string | undefined;
  readonly adapter?: string | undefined;
  /** Shape of the paper, folder or `config.json` of a model from scratch. */
  readonly configFrom?: string | undefined;
  /** Folder of its tokenizer, in place of that of `configFrom`. */
  readonly tokenizer?: string | undefined;
  /** Standard deviation of its matrices. */
  readonly initStd: number;
  readonly streams?: number | undefined;
  /** Empty for those of the checkpoint, or prefixes. */
  readonly transform: readonly Transform[];
  readonly prefixTokens?: number | undefined;
  readonly loraRank?: number | undefined;
  readonly smoothing?: number | undefined;
  readonly aggregation?: Aggregation | undefined;
  /** Unless told, all; introduced over a GGUF file, which stays as it is. */
  readonly trainParams?: "all" | "introduced" | undefined;
  /** Hidden units of the prefix MLP; 0 trains the prefixes themselves. */
  readonly reparameterize: number;
  readonly ropeTheta?: number | undefined;
  /** New `max_position_embeddings`. */
  readonly context?: number | undefined;
  readonly saveDtype?: WeightType | undefined;
  readonly seed: number;
}

/** A model about to be trained. */
export interface ModelSource {
  readonly config: ModelConfig;
  readonly configJson: JsonObject;
  /** Tokenizer and other companions; undefined where there are none. */
  readonly files: ModelFiles | undefined;
  /** The checkpoint underneath, if there is one. */
  readonly checkpoint: Checkpoint | undefined;
  readonly params: "all" | "introduced";
  /** Size of the first prefixes: as large as keys of text, or near zero; undefined without any. */
  readonly prefixStart: "text" | "normal" | undefined;
  /** Parameters that learn. */
  readonly trained: readonly ParameterSpec[];
  readonly substitute: Substitute | undefined;
  /** First values of a parameter. */
  readonly initial: (name: string) => Promise<Float32Array>;
  /** Hash of the checkpoint underneath, computed at the first call. */
  readonly backboneSha256: () => Promise<string> | undefined;
}

/** Opens and checks the model of a run. */
export async function openModelSource(choices: ModelChoices): Promise<ModelSource> {
  if (choices.configFrom !== undefined && choices.trainParams === "introduced") {
    throw new UsageError(
      "a model from scratch cannot train its introduced parameters alone: its backbone would be lost",
      { hints: ["train all parameters, or pass a checkpoint with `--model`"] },
    );
  }
  const base = await openBase(choices);
  const aggregation = choices.aggregation ?? base.config.aggregator;
  const ofFile = base.checkpoint?.files.isGguf;
  const { trainParams: params = ofFile ? "introduced" : "all", seed } = choices;
  const saveDtype = choices.saveDtype ??
    (params === "all" && base.checkpoint ? dtypeOfCodes(base.checkpoint) : undefined);
  const config = withChoices(base.config, { ...choices, aggregation, saveDtype });
  const specs = parameterSpecs(config);
  const R = choices.reparameterize;
  if (R > 0 && !config.prefix) {
    throw new UsageError("`--reparameterize` needs a model with prefixes", {
      hints: ["add `--streams 4`, or `--transform prefix` for a single stream"],
    });
  }
  const mlp = R > 0 ? reparameterSpecs(config, R) : [];
  const chosen = trainableSpecs(config, { params, aggregation });
  const kept = chosen.filter(({ name }) => R === 0 || !/\.prefix_[kv]$/.test(name));
  const trained = [...kept, ...mlp];
  if (trained.length === 0) {
    throw new UsageError(
      "this model has no introduced parameters to train: no prefix, aggregator, LoRA or BitFit",
      {
        hints: [
          "add `--streams 4`, or `--transform prefix` for a single stream",
          ...(ofFile ? ["to train the whole model instead: `--train-params all`"] : []),
        ],
      },
    );
  }
  const byName = new Map([...specs, ...mlp].map((spec) => [spec.name, spec]));
  const initial = async (name: string): Promise<Float32Array> => {
    const spec = byName.get(name)!;
    if (name.startsWith("prefix_mlp.")) return reparameterValues(spec, R, seed);
    if (aggregation !== config.aggregator && name.startsWith("model.aggregate_layer.")) {
      const fresh = !base.checkpoint?.tensors.has(name);
      if (fresh || isFixed(name, aggregation)) return new Float32Array(elementCount(spec.shape));
    }
    const stored = base.checkpoint?.tensors.get(name);
    if (stored && stored.shape.join() === spec.shape.join()) return await readTensor(stored);
    if (spec.introduced) return introducedValues(spec, seed);
    return scratchValues(spec, config, seed, choices.initStd);
  };
  let hash: Promise<string> | undefined;
  const json = configToJson(config, base.configJson);
  return {
    ...base,
    config,
    configJson: {
      ...json,
      ...ropeToJson(config, json),
      max_position_embeddings: config.maxPositionEmbeddings,
    },
    params,
    prefixStart: config.prefix ? await startOf(base.checkpoint) : undefined,
    trained,
    substitute: R > 0 ? reparameterized(config, R) : undefined,
    initial,
    backboneSha256: () => {
      if (base.checkpoint) hash ??= backboneHash(base.checkpoint);
      return hash;
    },
  };
}

/** Prefixes of a checkpoint, or new ones, which are drawn from a normal distribution. */
async function startOf(checkpoint: Checkpoint | undefined): Promise<"text" | "normal"> {
  const keys = checkpoint?.tensors.get("model.layers.0.self_attn.prefix_k");
  if (keys === undefined) return "normal";
  const values = await readTensor(keys);
  const squares = values.reduce((sum, value) => sum + value * value, 0);
  // Random ones have a deviation of 0.02, keys of text one of about 1.
  return Math.sqrt(squares / values.length) < 0.1 ? "normal" : "text";
}

/** The model before any choice. */
type Base = Pick<ModelSource, "config" | "configJson" | "files" | "checkpoint">;

async function openBase({ model, adapter, configFrom, tokenizer }: ModelChoices): Promise<Base> {
  if ((model === undefined) === (configFrom === undefined)) {
    throw new UsageError(
      model ? "`--model` excludes `--config-from`" : "`train` needs `--model` or `--config-from`",
      { hints: ["`--init scratch` takes `--config-from`, everything else takes `--model`"] },
    );
  }
  if (model !== undefined) {
    const checkpoint = await openCheckpoint(model, { adapter, purpose: "`train`" });
    const { config, configJson, files } = checkpoint;
    return { config, configJson, files, checkpoint };
  }
  const { json, path, files } = await readShape(configFrom!);
  return {
    config: parseConfig(json, path),
    configJson: json,
    files: tokenizer === undefined ? files : await openModelFiles(tokenizer),
    checkpoint: undefined,
  };
}

/** The config to be trained; streams may be given to a plain model, not changed in another. */
function withChoices(base: ModelConfig, choices: ModelChoices): ModelConfig {
  const { streams, prefixTokens, loraRank, smoothing } = choices;
  const transforms = choices.transform.length > 0 ? choices.transform : undefined;
  const changed = {
    ...base,
    ropeTheta: choices.ropeTheta ?? base.ropeTheta,
    maxPositionEmbeddings: choices.context ?? base.maxPositionEmbeddings,
    dtype: choices.saveDtype ?? base.dtype,
  };
  const asked = { streams, transforms, prefixTokens, loraRank };
  const aggregator = aggregatorFor(choices.aggregation ?? base.aggregator);
  if (Object.values(asked).every((value) => value === undefined)) {
    if (isParScale(base)) refuseOther(base, { ...base, aggregator });
    return { ...changed, smoothing: smoothing ?? base.smoothing };
  }
  const P = streams ?? base.streams;
  const used = new Set(transforms ?? (isParScale(base) ? transformsOf(base) : ["prefix"]));
  if (loraRank !== undefined && !used.has("lora")) {
    throw new UsageError("`--lora-rank` needs `--transform lora`", {
      hints: ["add `--transform lora`, or leave `--lora-rank` out"],
    });
  }
  const M = prefixTokens ?? (isParScale(base) ? base.prefixTokens : 48);
  const config = {
    ...changed,
    streams: P,
    prefix: used.has("prefix") && M > 0,
    prefixTokens: M,
    loraRank: used.has("lora") ? loraRank ?? (base.loraRank || 8) : 0,
    bitfit: used.has("bitfit"),
    smoothing: smoothing ?? (isParScale(base) ? base.smoothing : 0.1),
    aggregator,
  };
  if (isParScale(base)) refuseOther(base, config);
  // Streams of one are a plain model unless something is said to be introduced.
  return P === 1 && transforms === undefined ? plainConfig(config) : config;
}

function transformsOf({ prefix, loraRank, bitfit }: ModelConfig): Transform[] {
  const used = { prefix, lora: loraRank > 0, bitfit };
  return (Object.keys(used) as Transform[]).filter((name) => used[name]);
}

function refuseOther(base: ModelConfig, asked: ModelConfig): void {
  const flags = [
    ["--streams", "streams"],
    ["--prefix-tokens", "prefixTokens"],
    ["--lora-rank", "loraRank"],
    ["--transform", "prefix"],
    ["--transform", "bitfit"],
    ["--aggregation", "aggregator"],
  ] as const;
  for (const [flag, field] of flags) {
    if (base[field] === asked[field]) continue;
    const words = field.replace(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`);
    throw new UsageError(
      `\`${flag}\` cannot change a ParScale model: it has ${words} ${base[field]}`,
      { hints: ["leave the flag out, or take the backbone with `parscale convert --strip`"] },
    );
  }
}
