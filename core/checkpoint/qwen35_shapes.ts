/** The dense models of Qwen3.5 by name, `qwen3.5-0.8b` for instance: their text models, in bfloat16. */
import type { JsonObject } from "../base/files.ts";

/** Width, MLP, layers, query heads, key heads, value heads of a delta net, and whether there is one table. */
type Sizes = readonly [number, number, number, number, number, number, boolean];

const SIZES: Readonly<Record<string, Sizes>> = {
  "qwen3.5-0.8b": [1024, 3584, 24, 8, 2, 16, true],
  "qwen3.5-2b": [2048, 6144, 24, 8, 2, 16, true],
  "qwen3.5-4b": [2560, 9216, 32, 16, 4, 32, true],
  "qwen3.5-9b": [4096, 12288, 32, 16, 4, 32, false],
};

export const QWEN35_NAMES: readonly string[] = Object.keys(SIZES);

/** The configuration of the model of this name, in any case. */
export function findQwen35(name: string): JsonObject | undefined {
  const sizes = SIZES[name.toLowerCase()];
  if (sizes === undefined) return undefined;
  const [width, mlp, layers, heads, keyHeads, valueHeads, tied] = sizes;
  return {
    architectures: ["Qwen3_5ForCausalLM"],
    model_type: "qwen3_5_text",
    vocab_size: 248_320,
    hidden_size: width,
    intermediate_size: mlp,
    num_hidden_layers: layers,
    num_attention_heads: heads,
    num_key_value_heads: keyHeads,
    head_dim: 256,
    linear_num_key_heads: 16,
    linear_num_value_heads: valueHeads,
    linear_key_head_dim: 128,
    linear_value_head_dim: 128,
    linear_conv_kernel_dim: 4,
    full_attention_interval: 4,
    max_position_embeddings: 262_144,
    rope_parameters: {
      rope_type: "default",
      rope_theta: 10_000_000,
      partial_rotary_factor: 0.25,
      mrope_section: [11, 11, 10],
      mrope_interleaved: true,
    },
    rms_norm_eps: 1e-6,
    hidden_act: "silu",
    initializer_range: 0.02,
    attention_bias: false,
    attention_dropout: 0,
    tie_word_embeddings: tied,
    use_cache: true,
    eos_token_id: 248_044,
    dtype: "bfloat16",
  };
}
