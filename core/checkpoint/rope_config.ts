/**
 * The rotary position embedding in a `config.json`.
 *
 * Older writers have `rope_theta` and `rope_scaling`; newer ones put both into `rope_parameters`. A
 * scaling means what transformers computes from it (modeling_rope_utils.py).
 */
import { isObject, type JsonObject } from "../base/files.ts";
import { type ModelConfig, type RopeScaling, yarnAttentionFactor } from "../model/config.ts";
import { Fields } from "./fields.ts";

/** What the rotary embedding decides of a model. */
type RopeConfig = Pick<ModelConfig, "ropeTheta" | "ropeScaling" | "maxPositionEmbeddings">;

/** Reads base, scaling and the context that goes with them; `context` is what the file states. */
export function readRope(fields: Fields, context: number): RopeConfig {
  const scaling = readScaling(fields, context);
  // Qwen2.5 states the context without YaRN and is extended by its factor.
  const isExtended = scaling?.kind === "yarn" && scaling.originalContext === context;
  return {
    ropeTheta: readTheta(fields),
    ...(scaling && { ropeScaling: scaling }),
    maxPositionEmbeddings: isExtended ? Math.floor(context * scaling.factor) : context,
  };
}

/** The fields that state base and scaling, in the spelling that old and new readers understand. */
export function ropeToJson({ ropeTheta, ropeScaling }: ModelConfig): JsonObject {
  return {
    rope_theta: ropeTheta,
    ...(ropeScaling && { rope_scaling: scalingToJson(ropeScaling) }),
  };
}

function readTheta(fields: Fields): number {
  const parameters = fields.json.rope_parameters;
  if (!isObject(parameters)) return fields.positive("rope_theta", 10000);
  const theta = parameters.rope_theta ?? fields.json.rope_theta;
  if (typeof theta !== "number" || !(theta > 0) || !Number.isFinite(theta)) {
    throw fields.error("rope_parameters", "an object with a positive rope_theta");
  }
  return theta;
}

function readScaling(fields: Fields, context: number): RopeScaling | undefined {
  for (const key of ["rope_parameters", "rope_scaling"]) {
    const json = fields.json[key] ?? {};
    if (!isObject(json)) throw fields.error(key, "an object or null");
    if ((json.partial_rotary_factor ?? fields.json.partial_rotary_factor ?? 1) !== 1) {
      throw fields.refusal("partial_rotary_factor other than 1 is not supported", key);
    }
    const kind = json.rope_type ?? json.type ?? "default";
    if (kind === "default") continue;
    const within = new Fields(json, `${key}" of "${fields.path}`);
    if (kind === "llama3") return readLlama3(within, context);
    if (kind === "yarn") return readYarn(within, context);
    throw fields.error(key, 'an object with rope_type "default", "llama3" or "yarn"', [
      `set ${key} to null to run within the original context length`,
    ]);
  }
}

function readLlama3(fields: Fields, context: number): RopeScaling {
  const low = fields.requiredPositive("low_freq_factor");
  const high = fields.requiredPositive("high_freq_factor");
  if (!(low < high)) {
    throw fields.error("high_freq_factor", `a number above low_freq_factor, ${low}`);
  }
  return {
    kind: "llama3",
    factor: fields.requiredPositive("factor"),
    lowFrequencyFactor: low,
    highFrequencyFactor: high,
    originalContext: fields.integer("original_max_position_embeddings", context),
  };
}

function readYarn(fields: Fields, context: number): RopeScaling {
  const factor = fields.requiredPositive("factor");
  const { mscale, mscale_all_dim: all } = fields.json;
  const scaled = typeof mscale === "number" && typeof all === "number" && mscale && all
    ? yarnAttentionFactor(factor, mscale) / yarnAttentionFactor(factor, all)
    : yarnAttentionFactor(factor, 1);
  return {
    kind: "yarn",
    factor,
    attentionFactor: fields.positive("attention_factor", scaled),
    betaFast: fields.positive("beta_fast", 32),
    betaSlow: fields.positive("beta_slow", 1),
    truncate: fields.boolean("truncate", true),
    originalContext: fields.integer("original_max_position_embeddings", context),
  };
}

function scalingToJson(scaling: RopeScaling): JsonObject {
  const shared = {
    rope_type: scaling.kind,
    factor: scaling.factor,
    original_max_position_embeddings: scaling.originalContext,
  };
  if (scaling.kind === "llama3") {
    return {
      ...shared,
      low_freq_factor: scaling.lowFrequencyFactor,
      high_freq_factor: scaling.highFrequencyFactor,
    };
  }
  return {
    ...shared,
    attention_factor: scaling.attentionFactor,
    beta_fast: scaling.betaFast,
    beta_slow: scaling.betaSlow,
    truncate: scaling.truncate,
  };
}
