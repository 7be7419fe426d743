/**
 * The transformer block of Qwen2, Qwen2.5, Qwen3, Qwen3.5 and Llama as graph builders; the delta nets of
 * Qwen3.5 are in `delta_net.ts`.
 *
 * A plain model is this file alone; `parscale.ts` adds prefixes and aggregation, so that reading the
 * two side by side shows the paper. Activations are flat, [rows · T, C]; shapes in comments use
 * B sequences, P streams, R = P·B rows (B in layer 0), T new tokens, S slots of the cache.
 */
import { concat, type Value } from "../graph/value.ts";
import { swiglu } from "../ops/activation.ts";
import { attention } from "../ops/attention.ts";
import { repeatStreams } from "../ops/repeat_streams.ts";
import { rope, type RopeTables } from "../ops/rope.ts";
import { type BlockContext, type BlockRows, norm } from "./block_context.ts";
import { hasHeadNorms, isDeltaNet, type ModelConfig } from "./config.ts";
import { deltaNet } from "./delta_net.ts";
import { project } from "./transforms.ts";

/**
 * One transformer layer: x [rows·T, C] → [P·B·T, C].
 *
 * When a prefix is given and x has B rows, the result has P·B: the streams part in this layer.
 */
export function block(context: BlockContext, layer: number, x: Value, at: BlockRows): Value {
  const { config } = context;
  const name = `model.layers.${layer}`;
  const mix = isDeltaNet(config, layer) ? deltaNet : selfAttention;
  const mixed = mix(context, layer, norm(context, `${name}.input_layernorm`, x), at);
  const streams = mixed.shape[0]! / x.shape[0]!;
  const afterAttention = mixed.add(repeatStreams(x, streams));
  const h = norm(context, `${name}.post_attention_layernorm`, afterAttention);
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
  const { config, visible } = context;
  const { numAttentionHeads: H, numKeyValueHeads: K, headDim: D } = config;
  const name = `model.layers.${layer}.self_attn`;
  const projected = (which: string) =>
    // [rows·T, heads·D]
    project(context, `${name}.${which}_proj`, x, config.attentionBias);
  const rotated = (which: "q" | "k", flat: Value, heads: number) => {
    const split = flat.reshape([rows, T, heads, D]);
    const normed = hasHeadNorms(config) ? norm(context, `${name}.${which}_norm`, split) : split;
    return rotate(normed, context.tables(rows));
  };
  const { query, gate } = splitGate(projected("q"), config);
  const q = rotated("q", query, H); // [rows, T, H, D]
  const k = rotated("k", projected("k"), K); // [rows, T, K, D]
  const v = projected("v").reshape([rows, T, K, D]);
  const keys = context.keep("keys", layer, k); // [rows, K, S, D]
  const values = context.keep("values", layer, v); // [rows, K, S, D]
  const mixed = attention({ q, keys, values, visible, prefix }); // [P·B, T, H·D]
  const flat = mixed.reshape([mixed.shape[0]! * T, H * D]);
  const streams = flat.shape[0]! / x.shape[0]!;
  const gated = gate ? flat.mul(repeatStreams(gate.sigmoid(), streams)) : flat;
  return project(context, `${name}.o_proj`, gated, config.outputBias);
}

/** Queries, and for Qwen3.5 gates [rows·T, H·D], of which a head has its own after its query. */
function splitGate(x: Value, config: ModelConfig): { query: Value; gate?: Value } {
  if (config.family !== "qwen3_5") return { query: x };
  const { numAttentionHeads: H, headDim: D } = config;
  const heads = x.reshape([x.shape[0]!, H, 2 * D]);
  const half = (i: number) => heads.slice(2, i * D, (i + 1) * D).reshape([x.shape[0]!, H * D]);
  return { query: half(0), gate: half(1) };
}

/** Rotates the first elements of each head, as many as the tables say: x [rows, T, heads, D] */
function rotate(x: Value, tables: RopeTables): Value {
  const [rows, T, heads, D] = x.shape as [number, number, number, number];
  const turning = 2 * tables.cos.shape[2]!;
  const turn = (part: Value) =>
    rope({ x: part.reshape([rows, T, heads * turning]), ...tables }, { heads })
      .reshape([rows, T, heads, turning]);
  if (turning === D) return turn(x);
  return concat([turn(x.slice(3, 0, turning)), x.slice(3, turning, D)], 3);
}
