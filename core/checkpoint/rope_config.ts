/**
 * The rotary position embedding in a `config.json`.
 *
 * Older writers have `rope_theta` and `rope_scaling`; newer ones put both into `rope_parameters`. A
 * scaling means what transformers computes from it (modeling_rope_utils.py).
 */
import { isObject, type JsonObject } from "../base/files.ts";
import { type ModelConfig, type RopeScaling, yarnAttentionFactor } from "../model/config.ts";
import { Fields } from "./fields.ts";

/** Fields of a model that the rotary embedding decides. */
type RopeConfig = Pick<ModelConfig, "ropeTheta" | "ropeScaling" | "maxPositionEmbeddings">;

/**
 * Reads base, scaling and the context that goes with them; `context` is what the file states, and `partly`
 * tells that a part of each head may rotate.
 */
export function readRope(fields: Fields, context: number, { partly = false } = {}): RopeConfig {
  const whole = partly ? withoutFactor(fields) : fields;
  const scaling = readScaling(whole, context);
  // Qwen2.5 states the context without YaRN and is extended by its factor.
  const isExtended = scaling?.kind === "yarn" && scaling.originalContext === context;
  return {
    ropeTheta: readTheta(fields),
    ...(scaling && { ropeScaling: scaling }),
    maxPositionEmbeddings: isExtended ? Math.floor(context * scaling.factor) : context,
  };
}

/**
 * The fields that state base and scaling, in the spelling that old and new readers understand; for Qwen3.5,
 * which has new readers alone, those of `json` with another base.
 */
export function ropeToJson(
  { family, ropeTheta, ropeScaling }: ModelConfig,
  json: JsonObject = {},
): JsonObject {
  if (family === "qwen3_5") {
    const rope = isObject(json.rope_parameters) ? json.rope_parameters : {};
    return { rope_parameters: { ...rope, rope_theta: ropeTheta } };
  }
  return {
    rope_theta: ropeTheta,
    ...(ropeScaling && { rope_scaling: scalingToJson(ropeScaling) }),
  };
}

/** Bases of the rotary embedding; 1e4 to 1e9 are in use. Outside this range f32 cannot tell angles apart. */
const THETA = { low: 2, high: 1e12 };

/** Factors and thresholds of a scaling; 1 to 128 are in use. */
const SCALE = { low: 1e-3, high: 1e6 };

/** The fields less the share of a head that rotates. */
function withoutFactor({ json, path }: Fields): Fields {
  const without = ({ partial_rotary_factor: _, ...others }: JsonObject) => others;
  const rope = json.rope_parameters;
  return new Fields(
    { ...without(json), ...(isObject(rope) && { rope_parameters: without(rope) }) },
    path,
  );
}

function readTheta(fields: Fields): number {
  const parameters = fields.json.rope_parameters;
  if (!isObject(parameters)) return fields.within("rope_theta", THETA, 10000);
  const both = { ...parameters, rope_theta: parameters.rope_theta ?? fields.json.rope_theta };
  return new Fields(both, `rope_parameters" of "${fields.path}`).within("rope_theta", THETA);
}

/** Reads the scaling from either field; two that differ contradict each other. */
function readScaling(fields: Fields, context: number): RopeScaling | undefined {
  const [newer, older] = ["rope_parameters", "rope_scaling"]
    .map((key) => readScalingOf(key, fields, context));
  if (newer && older && JSON.stringify(newer) !== JSON.stringify(older)) {
    throw fields.refusal("rope_parameters states another scaling", "rope_scaling", [
      "remove one of the two",
    ]);
  }
  return newer ?? older;
}

function readScalingOf(key: string, fields: Fields, context: number): RopeScaling | undefined {
  const json = fields.json[key] ?? {};
  if (!isObject(json)) throw fields.error(key, "an object or null");
  // Beside the scaling, the original context wins over that within.
  const { original_max_position_embeddings: original } = fields.json;
  const within = new Fields(
    { ...json, ...((original ?? null) !== null && { original_max_position_embeddings: original }) },
    `${key}" of "${fields.path}`,
  );
  for (const place of [within, fields]) {
    if ((place.json.partial_rotary_factor ?? 1) === 1) continue;
    throw place.refusal("rotating a part of each head is not supported", "partial_rotary_factor");
  }
  const kind = json.rope_type ?? json.type ?? "default";
  if (kind === "default") return undefined;
  if (kind === "llama3") return readLlama3(within, context);
  if (kind === "yarn") return readYarn(within, context);
  // Other scalings change angles within the original context, too.
  const hints = kind === "dynamic"
    ? [`set ${key} to null to run within the original context length`]
    : [];
  throw fields.error(key, 'an object with rope_type "default", "llama3" or "yarn"', hints);
}

function readLlama3(fields: Fields, context: number): RopeScaling {
  const low = fields.within("low_freq_factor", SCALE);
  const high = fields.within("high_freq_factor", SCALE);
  if (!(low < high)) {
    throw fields.error("high_freq_factor", `a number above low_freq_factor, ${low}`);
  }
  return {
    kind: "llama3",
    factor: fields.within("factor", SCALE),
    lowFrequencyFactor: low,
    highFrequencyFactor: high,
    originalContext: fields.integer("original_max_position_embeddings", context),
  };
}

function readYarn(fields: Fields, context: number): RopeScaling {
  const factor = fields.within("factor", SCALE);
  const { mscale, mscale_all_dim: all } = fields.json;
  const scaled = typeof mscale === "number" && typeof all === "number" && mscale && all
    ? yarnAttentionFactor(factor, mscale) / yarnAttentionFactor(factor, all)
    : yarnAttentionFactor(factor, 1);
  return {
    kind: "yarn",
    factor,
    attentionFactor: fields.within("attention_factor", SCALE, scaled),
    betaFast: fields.within("beta_fast", SCALE, 32),
    betaSlow: fields.within("beta_slow", SCALE, 1),
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
