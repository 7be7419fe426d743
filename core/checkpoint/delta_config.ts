/**
 * Qwen3.5 in a `config.json`: the text model of a file that may describe one for images too, and the sizes
 * of its delta nets. Defaults are those of transformers 5.24.
 */
import { isObject, type JsonObject, show } from "../base/files.ts";
import type { DeltaConfig, ModelConfig } from "../model/config.ts";
import { Fields } from "./fields.ts";

/** Fields that a whole model has beside its text model, and that count. */
const SHARED = ["tie_word_embeddings", "dtype", "torch_dtype"];

/** The fields of the text model. */
export function textFields(json: JsonObject): JsonObject {
  const text = json.text_config;
  if (!isObject(text)) return json;
  const own = Object.entries(json).filter(([key]) =>
    key.startsWith("parscale_") || SHARED.includes(key)
  );
  const ends = { eos_token_id: text.eos_token_id ?? json.eos_token_id };
  // The text model's own flag decides in transformers; files that lack it share the table all the same.
  const ties = text.tie_word_embeddings === true && { tie_word_embeddings: true };
  return { ...text, ...ends, ...Object.fromEntries(own), ...ties, model_type: json.model_type };
}

/** Layer types by their names. */
const LAYER_TYPES = ["linear_attention", "full_attention"];

/** Reads what tells Qwen3.5 from Qwen3. */
export function readDelta(
  fields: Fields,
  layers: number,
  headDim: number,
): Pick<ModelConfig, "delta" | "rotaryDim"> {
  if (!fields.boolean("attn_output_gate", true)) throw fields.error("attn_output_gate", "true");
  const keyHeads = fields.integer("linear_num_key_heads", 16);
  const valueHeads = fields.integer("linear_num_value_heads", 32);
  if (valueHeads % keyHeads !== 0) {
    throw fields.error("linear_num_value_heads", `a multiple of the ${keyHeads} key heads`);
  }
  const delta: DeltaConfig = {
    layers: readLayers(fields, layers),
    keyHeads,
    valueHeads,
    keyDim: fields.integer("linear_key_head_dim", 128),
    valueDim: fields.integer("linear_value_head_dim", 128),
    kernel: fields.integer("linear_conv_kernel_dim", 4, 2, 64),
  };
  return { delta, rotaryDim: readRotaryDim(fields, headDim) };
}

/** True for each layer that is a delta net: by default all but every fourth. */
function readLayers(fields: Fields, count: number): boolean[] {
  const interval = fields.integer("full_attention_interval", 4);
  const usual = (i: number) => LAYER_TYPES[(i + 1) % interval === 0 ? 1 : 0]!;
  const types = fields.json.layer_types ?? Array.from({ length: count }, (_, i) => usual(i));
  const isKnown = Array.isArray(types) && types.length === count &&
    types.every((type) => LAYER_TYPES.includes(type));
  if (!isKnown) {
    throw fields.error("layer_types", `one of ${LAYER_TYPES.join(", ")} in every layer`);
  }
  return types.map((type) => type === LAYER_TYPES[0]);
}

function readRotaryDim(fields: Fields, headDim: number): number {
  const { rope_parameters: rope } = fields.json;
  const within = isObject(rope) && rope.partial_rotary_factor !== undefined;
  const at = within ? new Fields(rope, `rope_parameters" of "${fields.path}`) : fields;
  const factor = at.within("partial_rotary_factor", { low: 0, high: 1 }, 0.25);
  const size = Math.floor(headDim * factor);
  if (size > 0 && size % 2 === 0) return size;
  throw at.refusal(
    `${show(size)} elements of a head would rotate, and they rotate in pairs`,
    "partial_rotary_factor",
  );
}
