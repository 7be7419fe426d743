/**
 * The transformer block of Qwen2, Qwen2.5, Qwen3 and Llama as graph builders.
 *
 * A plain model is this file alone; `parscale.ts` adds prefixes and aggregation, so that reading the
 * two side by side shows the paper. Activations are flat, [rows · T, C]; shapes in comments use
 * B sequences, P streams, R = P·B rows (B in layer 0), T new tokens, S slots of the cache.
 */
import type { Value } from "../graph/value.ts";
import { swiglu } from "../ops/activation.ts";
import { attention, type Prefix, type Visible } from "../ops/attention.ts";
import { repeatStreams } from "../ops/repeat_streams.ts";
import { rmsNorm } from "../ops/rms_norm.ts";
import { rope, type RopeTables } from "../ops/rope.ts";
import type { ModelConfig } from "./config.ts";
import { project } from "./transforms.ts";

/** Operands of a block besides its input. */
export interface BlockContext {
  readonly config: ModelConfig;
  /** Declares a parameter with its checkpoint name; absent biases give `undefined`. */
  readonly parameter: (name: string) => Value;
  /** Attention mask of each token. */
  readonly visible: Visible;
  /** Per row count, since layer 0 may have B rows and the others P·B. */
  readonly tables: (rows: number) => RopeTables;
  /**
   * Stores new keys and values [rows, T, K, D] before they are attended to: in the KV cache when
   * generating, straight on when training. Returns [rows, K, S, D].
   */
  readonly keep: (kind: "keys" | "values", layer: number, update: Value) => Value;
}

/** Relation of the rows of a block's input to the streams. */
export interface BlockRows {
  /** Rows of x: B while the streams are still equal, else P·B. */
  readonly rows: number;
  /** New tokens per row. */
  readonly T: number;
  readonly prefix?: Prefix;
}

/**
 * One transformer layer: x [rows·T, C] → [P·B·T, C].
 *
 * When a prefix is given and x has B rows, the result has P·B: the streams part in this layer.
 */
export function block(context: BlockContext, layer: number, x: Value, at: BlockRows): Value {
  const { config, parameter } = context;
  const name = `model.layers.${layer}`;
  const norm = (value: Value, which: string) =>
    rmsNorm({ x: value, weight: parameter(`${name}.${which}.weight`) }, {
      epsilon: config.rmsNormEps,
    });

  const attended = selfAttention(context, layer, norm(x, "input_layernorm"), at);
  const streams = attended.shape[0]! / x.shape[0]!;
  const afterAttention = attended.add(repeatStreams(x, streams));
  const h = norm(afterAttention, "post_attention_layernorm");
  const mlp = (which: string, value: Value) =>
    project(context, `${name}.mlp.${which}_proj`, value, config.mlpBias);
  const down = mlp("down", swiglu({ gate: mlp("gate", h), up: mlp("up", h) }));
  return down.add(afterAttention);
}

/** Projections, rotation, attention and output projection of one layer. */
function selfAttention(
  context: BlockContext,
  layer: number,
  x: Value,
  { rows, T, prefix }: BlockRows,
): Value {
  const { config, parameter, visible } = context;
  const { numAttentionHeads: H, numKeyValueHeads: K, headDim: D } = config;
  const name = `model.layers.${layer}.self_attn`;

  const projected = (which: string) =>
    // [rows·T, heads·D]
    project(context, `${name}.${which}_proj`, x, config.attentionBias);
  const rotated = (which: "q" | "k", heads: number) => {
    let flat = projected(which);
    if (config.family === "qwen3") {
      const split = flat.reshape([rows, T, heads, D]);
      flat = rmsNorm({ x: split, weight: parameter(`${name}.${which}_norm.weight`) }, {
        epsilon: config.rmsNormEps,
      });
    }
    const turned = rope({ x: flat.reshape([rows, T, heads * D]), ...context.tables(rows) }, {
      heads,
    });
    return turned.reshape([rows, T, heads, D]);
  };
  const q = rotated("q", H); // [rows, T, H, D]
  const k = rotated("k", K); // [rows, T, K, D]
  const v = projected("v").reshape([rows, T, K, D]);
  const keys = context.keep("keys", layer, k); // [rows, K, S, D]
  const values = context.keep("values", layer, v); // [rows, K, S, D]
  const mixed = attention({ q, keys, values, visible, prefix }); // [P·B, T, H·D]
  const flat = mixed.reshape([mixed.shape[0]! * T, H * D]);
  return project(context, `${name}.o_proj`, flat, config.outputBias);
}
