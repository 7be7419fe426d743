/**
 * The Qwen2, Qwen2.5 and Qwen3 transformer block as graph builders.
 *
 * A plain model is this file alone; `parscale.ts` adds prefixes and aggregation, so that reading the
 * two side by side shows the paper. Activations are flat, [rows · T, C]; shapes in comments use
 * B sequences, P streams, R = P·B rows (B in layer 0), T new tokens, S slots of the cache.
 */
import type { Builder } from "../graph/builder.ts";
import { add, reshape, transpose, writeSlots } from "../graph/primitives.ts";
import type { Value } from "../graph/types.ts";
import { swiglu } from "../ops/activation.ts";
import { attention, type Prefix } from "../ops/attention.ts";
import { linear } from "../ops/linear.ts";
import { repeatStreams } from "../ops/repeat_streams.ts";
import { rmsNorm } from "../ops/rms_norm.ts";
import { rope, type RopeTables } from "../ops/rope.ts";
import type { ModelConfig } from "./config.ts";

/** What a block needs besides its input. */
export interface BlockContext {
  readonly g: Builder;
  readonly config: ModelConfig;
  /** Declares a parameter with its checkpoint name; absent biases give `undefined`. */
  readonly parameter: (name: string) => Value;
  /** [B, T] i32, the position of every token of every sequence. */
  readonly positions: Value;
  /** Per row count, since layer 0 may have B rows and the others P·B. */
  readonly byRows: (rows: number) => { readonly start: Value; readonly tables: RopeTables };
  /** Slots of the KV cache. */
  readonly capacity: number;
}

/** How the rows of a block's input relate to the streams. */
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
  const { g, config, parameter } = context;
  const name = `model.layers.${layer}`;
  const norm = (value: Value, which: string) =>
    rmsNorm(g, value, parameter(`${name}.${which}.weight`), config.rmsNormEps);

  const attended = selfAttention(context, layer, norm(x, "input_layernorm"), at);
  const streams = attended.shape[0]! / x.shape[0]!;
  const afterAttention = add(g, attended, repeatStreams(g, x, streams));
  const h = norm(afterAttention, "post_attention_layernorm");
  const gate = linear(g, h, parameter(`${name}.mlp.gate_proj.weight`));
  const up = linear(g, h, parameter(`${name}.mlp.up_proj.weight`));
  const down = linear(g, swiglu(g, gate, up), parameter(`${name}.mlp.down_proj.weight`));
  return add(g, down, afterAttention);
}

/** Projections, rotation, cache update, attention and output projection of one layer. */
function selfAttention(
  context: BlockContext,
  layer: number,
  x: Value,
  { rows, T, prefix }: BlockRows,
): Value {
  const { g, config, parameter } = context;
  const { numAttentionHeads: H, numKeyValueHeads: K, headDim: D } = config;
  const name = `model.layers.${layer}.self_attn`;
  const { start, tables } = context.byRows(rows);

  const project = (which: string) => {
    const bias = config.attentionBias ? parameter(`${name}.${which}_proj.bias`) : undefined;
    return linear(g, x, parameter(`${name}.${which}_proj.weight`), bias); // [rows·T, heads·D]
  };
  const rotated = (which: "q" | "k", heads: number) => {
    let flat = project(which);
    if (config.family === "qwen3") {
      const split = reshape(g, flat, [rows, T, heads, D]);
      flat = rmsNorm(g, split, parameter(`${name}.${which}_norm.weight`), config.rmsNormEps);
    }
    const turned = rope(g, reshape(g, flat, [rows, T, heads * D]), tables, heads);
    return reshape(g, turned, [rows, T, heads, D]);
  };
  const cached = (kind: "keys" | "values", update: Value) => {
    const shape = [rows, K, context.capacity, D];
    const buffer = g.state(`${kind}.${layer}`, { dtype: "f32", shape });
    const written = writeSlots(g, buffer, transpose(g, update, [0, 2, 1, 3]), start);
    g.update(`${kind}.${layer}`, written);
    return written;
  };

  const q = rotated("q", H); // [rows, T, H, D]
  const k = rotated("k", K); // [rows, T, K, D]
  const v = reshape(g, project("v"), [rows, T, K, D]);
  const { positions } = context;
  const keys = cached("keys", k); // [rows, K, S, D]
  const values = cached("values", v); // [rows, K, S, D]
  const mixed = attention(g, { q, keys, values, positions, prefix }); // [P·B, T, H·D]
  const flat = reshape(g, mixed, [mixed.shape[0]! * T, H * D]);
  const bias = config.outputBias ? parameter(`${name}.o_proj.bias`) : undefined;
  return linear(g, flat, parameter(`${name}.o_proj.weight`), bias);
}
