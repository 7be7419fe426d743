/**
 * The gated delta net of Qwen3.5: a layer that carries a state in place of keys and values, so that its
 * memory does not grow with the text.
 *
 *   q, k, v = silu(conv(W_qkv x));  q, k to unit length, q / √Dk
 *   β = σ(W_b x),  g = −exp(A) softplus(W_a x + b)
 *   y = W_out (norm(gated_delta(q, k, v, g, β)) silu(W_z x))
 *
 * It has two states a row: the last inputs of the convolution and that of the delta rule. A stream is told
 * apart by those that it starts from, `prefix_conv` [P, W, K − 1] and `prefix_state` [P, H, Dk, Dv]; without
 * prefixes they are zero.
 *
 * Source: transformers 5.24, `Qwen3_5GatedDeltaNet`.
 */
import { elementCount } from "../graph/types.ts";
import { concat, type Graph, type Value } from "../graph/value.ts";
import { swiglu } from "../ops/activation.ts";
import { byChannel, causalConv, packedCausalConv } from "../ops/causal_conv.ts";
import { gatedDelta, packedGatedDelta } from "../ops/gated_delta.ts";
import { rmsNorm } from "../ops/rms_norm.ts";
import type { BlockContext, BlockRows, StateKind } from "./block_context.ts";
import { convWidth, type DeltaConfig, type ModelConfig } from "./config.ts";
import { project } from "./transforms.ts";

/** Shapes of the states of one row. */
export function stateShapes(delta: DeltaConfig): Readonly<Record<StateKind, readonly number[]>> {
  const { keyDim, valueDim, valueHeads, kernel } = delta;
  return { conv: [convWidth(delta), kernel - 1], delta: [valueHeads, keyDim, valueDim] };
}

/** Numbers in the states of one row and delta net; 0 for a model without these. */
export function stateElements({ delta }: Pick<ModelConfig, "delta">): number {
  if (!delta) return 0;
  return Object.values(stateShapes(delta)).reduce((sum, shape) => sum + elementCount(shape), 0);
}

/** Added to the squares of a query or key before its length is taken. */
const EPSILON = 1e-6;

/** x [R·T, C] → [R·T, C] */
export function deltaNet(
  context: BlockContext,
  layer: number,
  x: Value,
  { rows: R, T }: BlockRows,
): Value {
  const { config, parameter, states, visible: { first } } = context;
  const delta = config.delta!;
  const { keyHeads, valueHeads: H, keyDim: Dk, valueDim: Dv } = delta;
  const name = `model.layers.${layer}.linear_attn`;
  const projected = (which: string) => project(context, `${name}.in_proj_${which}`, x);
  const before = (kind: StateKind) =>
    states.before(kind, layer, () => repeatRows(startOf(context, kind, layer, x.graph), R));

  const mixed = projected("qkv").reshape([R, T, convWidth(delta)]);
  const past = before("conv");
  const weight = parameter(`${name}.conv1d.weight`);
  const count = past.shape[2]!, joined = concat([past, byChannel(mixed)], 2);
  // The cache is read once, since what overwrites it has to come after everything that reads it.
  const convolved = first
    ? packedCausalConv({ x: mixed, weight, past, first })
    : causalConv({ x: mixed, weight, past: joined.slice(2, 0, count) });
  states.after("conv", layer, lastInputs(joined, count, states.counts));

  const part = (start: number, heads: number, D: number) =>
    convolved.slice(2, start, start + heads * D).reshape([R, T, heads, D]);
  const keys = keyHeads * Dk;
  const [q, k] = [part(0, keyHeads, Dk), part(keys, keyHeads, Dk)];
  const gate = projected("a").reshape([R, T, H]).add(parameter(`${name}.dt_bias`));
  const decay = softplus(gate).mul(parameter(`${name}.A_log`).exp().mul(-1));
  const beta = projected("b").reshape([R, T, H]).sigmoid();
  const vectors = {
    q: perValueHead(ofLength(q, 1 / Math.sqrt(Dk)), H),
    k: perValueHead(ofLength(k, 1), H),
    v: part(2 * keys, H, Dv),
    decay: onlyCounted(decay, states.counts),
    beta: onlyCounted(beta, states.counts),
    state: before("delta"),
  };
  const [o, after] = first
    ? [packedGatedDelta({ ...vectors, first })]
    : gatedDelta.all(vectors, {});
  if (after) states.after("delta", layer, after);

  const epsilon = config.rmsNormEps;
  const normed = rmsNorm({ x: o!, weight: parameter(`${name}.norm.weight`) }, { epsilon });
  const up = normed.reshape([R * T, H * Dv]);
  return project(context, `${name}.out_proj`, swiglu({ gate: projected("z"), up }));
}

/** State that the sequences of each stream start from: [P or 1, …] */
export function startOf(
  { config, parameter }: Pick<BlockContext, "config" | "parameter">,
  kind: StateKind,
  layer: number,
  graph: Graph,
): Value {
  const { delta, prefix } = config;
  const at = `model.layers.${layer}.linear_attn`;
  if (!prefix) return graph.constant(0).broadcast([1, ...stateShapes(delta!)[kind]]);
  return parameter(`${at}.prefix_${kind === "conv" ? "conv" : "state"}`);
}

/** The state of each stream once per row: [P, …] → [R, …] */
function repeatRows(x: Value, R: number): Value {
  const [P, ...shape] = x.shape as [number, ...number[]];
  return x.reshape([P, 1, ...shape]).broadcast([P, R / P, ...shape]).reshape([R, ...shape]);
}

/** The last `count` of joined inputs [R, W, count + T] that count: [R, W, count] */
function lastInputs(joined: Value, count: number, counts: Value | undefined): Value {
  const [R, , length] = joined.shape as [number, number, number];
  if (!counts) return joined.slice(2, length - count, length);
  const { graph } = joined;
  const places = counts.reshape([R, 1, 1]).add(graph.iota(count));
  const slots = graph.iota(length).reshape([length, 1]);
  return joined.matmul(slots.equalFlags(places));
}

/** Zero at tokens that do not count: x [R, T, H] */
function onlyCounted(x: Value, counts: Value | undefined): Value {
  if (!counts) return x;
  const [R, T] = x.shape as [number, number];
  const isCounted = x.graph.iota(T).add(1).lessEqual(counts.reshape([R, 1])); // [R, T]
  return x.mul(isCounted.select(1, 0).reshape([R, T, 1]));
}

/** Vectors along the last axis brought to a length: x / √(Σ x² + ε), times it. */
function ofLength(x: Value, length: number): Value {
  const D = x.shape.at(-1)!;
  // The norm divides by the root of the mean.
  const weight = x.graph.constant(new Array<number>(D).fill(length / Math.sqrt(D)));
  return rmsNorm({ x, weight }, { epsilon: EPSILON / D });
}

/** Repeats each key head for its value heads: [R, T, heads, D] → [R, T, H, D] */
function perValueHead(x: Value, H: number): Value {
  const [R, T, heads, D] = x.shape as [number, number, number, number];
  if (heads === H) return x;
  const each = x.reshape([R, T, heads, 1, D]).broadcast([R, T, heads, H / heads, D]);
  return each.reshape([R, T, H, D]);
}

/** From here on ln(1 + eˣ) is x in f32. */
const LINEAR_FROM = 20;

/** ln(1 + eˣ) */
function softplus(x: Value): Value {
  const isSmall = x.lessEqual(LINEAR_FROM);
  const small = isSmall.select(x, LINEAR_FROM); // larger ones would overflow, also in the gradient
  return isSmall.select(small.exp().add(1).log(), x);
}
