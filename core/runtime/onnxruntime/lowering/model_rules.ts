/**
 * Model ops for which ONNX Runtime has a faster whole.
 *
 * Attention is not among them, since its plain decomposition beats the library's fused operators on the CPU
 * (the query heads of one key head become rows of a single product).
 */
import { packing, quantizedFormat } from "../../../quant/codes.ts";
import type { Attributes, RulesByName } from "../../../graph/types.ts";
import type { Value } from "../../../graph/value.ts";
import { silu, swiglu } from "../../../ops/activation.ts";
import { streamWeights } from "../../../ops/aggregate.ts";
import type { ModelOp, NamedNode } from "../../../ops/define.ts";
import { causalConv } from "../../../ops/causal_conv.ts";
import { embedding } from "../../../ops/embedding.ts";
import { gatedDelta } from "../../../ops/gated_delta.ts";
import { linear } from "../../../ops/linear.ts";
import { rmsNorm } from "../../../ops/rms_norm.ts";
import { rope } from "../../../ops/rope.ts";
import { softmax } from "../../../ops/softmax.ts";
import { tokenLogprobs } from "../../../ops/token_logprobs.ts";
import { tableFormatOf } from "../../weights.ts";
import type { OnnxType } from "../element_types.ts";
import type { Lowering, Rule, WeightForm } from "./lower.ts";
import { CONTRIB } from "./model.ts";

/** The rule of a model op, with its inputs by name. */
function modelRule<A extends Attributes, R extends string, O extends string>(
  op: ModelOp<A, R, O>,
  rule: (
    l: Lowering,
    inputs: NamedNode<A, R, O>["inputs"],
    attributes: A,
    output: string,
    others: readonly string[],
  ) => void,
): Rule<A> {
  return (l, inputs, attributes, ...outputs) => rule(l, op.named(inputs), attributes, ...outputs);
}

/**
 * `Gemm` packs a constant matrix when the session is made; quantised matrices have their own op. With
 * f16 a fixed matrix is f16, and so is the product, between casts.
 */
export function linearRule(type: "f32" | "f16"): Rule {
  return modelRule(linear, (l, { x, weight, bias }, _, output) => {
    const isWeight = l.isParameter(weight);
    const half = type === "f16" && isWeight;
    const operand = (value: Value) => {
      if (!half) return l.get(value);
      return l.isParameter(value)
        ? l.weight(value, "matrix", type, value.shape)
        : l.as("f16", l.get(value));
    };
    const biases = bias ? [operand(bias)] : [];
    const named = half ? {} : { output };
    let result: string;
    if (isWeight && l.formatOf(weight).kind !== "f32") {
      result = quantized(
        l,
        { x: operand(x), rows: x.shape[0]!, weight, biases, type },
        named.output,
      );
    } else {
      const matrix = isWeight ? l.weight(weight, "matrix", type, weight.shape) : l.get(weight);
      result = l.model.node("Gemm", [operand(x), matrix, ...biases], { transB: 1 }, named);
    }
    if (half) l.model.node("Cast", [result], { to: 1 }, { output });
  });
}

/** x Wᵀ + b with a weight in 8 or 4 bits, for x of some rows; `type` is that of x, b and the scales. */
function quantized(
  l: Lowering,
  { x, rows, weight, biases, type }: {
    x: string;
    rows: number;
    weight: Value;
    biases: readonly string[];
    type: "f32" | "f16";
  },
  output: string | undefined,
): string {
  const format = quantizedFormat(l.formatOf(weight)), { block } = format;
  const { rows: N, columns: K, bits, blocks } = packing(weight.shape, format);
  const packed = l.weight(weight, "blocks", "u8", [N, blocks, block * bits / 8]);
  const scales = l.weight(weight, "scales", type, [N * blocks]);
  const optional = biases.length > 0 ? ["", "", ...biases] : [];
  // Level 4 also rounds the activations of each block to 8 bits: several times faster.
  const attributes = { N, K, bits, block_size: block, accuracy_level: 4 };
  const multiply = (named: { readonly output?: string | undefined }) => {
    const inputs = (x: string) => [x, packed, scales, ...optional];
    if (bits === 8 || block === 16 || !l.doublesRows) {
      return l.model.node("MatMulNBits", inputs(x), attributes, { ...named, domain: CONTRIB });
    }
    const data = rows === 1 ? [0, 0] : Array.from({ length: rows }, (_, row) => row);
    const two = l.model.node("Gather", [x, l.size({ type: "i64", data })]);
    const product = l.model.node("MatMulNBits", inputs(two), attributes, { domain: CONTRIB });
    const end = l.size({ type: "i64", data: [rows] });
    return l.model.node("Slice", [product, l.longs(0), end, l.longs(0)], {}, named);
  };
  if (!format.offsets) return multiply({ output });
  const product = multiply({});
  // What an offset adds to a product is itself times the sum of x over its block.
  const offsets = l.weight(weight, "offsets", type, [N, blocks]);
  return l.model.node("Gemm", [l.blockSums(x, block), offsets, product], { transB: 1 }, { output });
}

/**
 * The rows of a table that are read, in f32; `keep` says how the table itself is kept, in which type
 * and form.
 */
export function embeddingRule(
  keep: (l: Lowering, table: Value) => { readonly form: WeightForm; readonly type: OnnxType },
): Rule {
  return modelRule(embedding, (l, { table, ids }, _, output) => {
    if (!l.isParameter(table)) {
      l.model.node("Gather", [l.get(table), l.get(ids)], { axis: 0 }, { output });
      return;
    }
    const { form, type } = keep(l, table);
    const weight = l.weight(table, form, type, table.shape);
    if (type === "f32") l.model.node("Gather", [weight, l.get(ids)], {}, { output });
    else {
      const rows = l.model.node("Gather", [weight, l.get(ids)]);
      l.model.node("Cast", [rows], { to: 1 }, { output });
    }
  });
}

/** A table as the checkpoint stores it, and in its file; rows of one in codes are dequantized. */
const EMBEDDING: Rule = (l, inputs, attributes, output, others) => {
  const { table, ids } = embedding.named(inputs);
  const format = tableFormatOf(l.weightOf(table));
  if (!format) return STORED_EMBEDDING(l, inputs, attributes, output, others);
  const { rows, blocks, rowBytes, bits } = packing(table.shape, format);
  const codes = l.weight(table, "table", "u8", [rows, rowBytes]);
  const scales = l.weight(table, "table scales", "f32", [rows, blocks]);
  const shape = { gather_axis: 0, quantize_axis: 1, block_size: format.block, bits };
  const names = [codes, l.get(ids), scales];
  l.model.node("GatherBlockQuantized", names, shape, { output, domain: CONTRIB });
};

const STORED_EMBEDDING = embeddingRule((l, table) => ({
  form: "stored",
  type: l.weightOf(table)!.dtype,
}));

const RMS_NORM = modelRule(rmsNorm, (l, { x, weight }, attributes, output) => {
  const epsilon = { float: attributes.epsilon };
  l.model.node("RMSNormalization", [l.get(x), l.get(weight)], { axis: -1, epsilon }, { output });
});

const ROPE = modelRule(rope, (l, { x, cos, sin }, { heads }, output) => {
  const inputs = [l.get(x), l.get(cos), l.get(sin)];
  l.model.node("RotaryEmbedding", inputs, { num_heads: heads }, { output });
});

const SOFTMAX = modelRule(softmax, (l, { x }, _, output) => {
  l.model.node("Softmax", [l.get(x)], { axis: -1 }, { output });
});

/** As it decomposes, but with ε/P from outside, so that models with other streams lower alike. */
const STREAM_WEIGHTS = modelRule(streamWeights, (l, { scores }, { smoothing }, output) => {
  const weights = l.model.node("Softmax", [l.get(scores)], { axis: -1 });
  const kept = l.model.node("Mul", [weights, l.size({ type: "f32", data: [1 - smoothing] })]);
  const spread = l.size({ type: "f32", data: [smoothing / scores.shape.at(-1)!] });
  l.model.node("Add", [kept, spread], {}, { output });
});

/** x σ(x) in one pass; the standard operator, Swish, has no kernel of its own and runs as three. */
const SILU = modelRule(silu, (l, { x }, _, output) => {
  const alpha = { float: 1 };
  l.model.node("QuickGelu", [l.get(x)], { alpha }, { output, domain: CONTRIB });
});

const SWIGLU = modelRule(swiglu, (l, { gate, up }, _, output) => {
  const alpha = { float: 1 };
  const [x, factor] = [l.get(gate), l.get(up)];
  const activated = l.model.node("QuickGelu", [x], { alpha }, { domain: CONTRIB });
  l.model.node("Mul", [activated, factor], {}, { output });
});

/** One operator, whose channels lie before the tokens; the program makes its state, see `lastInputs`. */
const CAUSAL_CONV = modelRule(causalConv, (l, { x, weight, past }, _, output) => {
  const swapped = (value: string, name?: { output: string }) =>
    l.model.node("Transpose", [value], { perm: [0, 2, 1] }, name);
  const inputs = [swapped(l.get(x)), l.get(weight), "", l.get(past)];
  const attributes = { activation: "silu", ndim: 1 };
  const others = [`${output}.state`];
  const result = l.model.node("CausalConvWithState", inputs, attributes, {
    domain: CONTRIB,
    others,
  });
  swapped(result, { output });
});

/** One operator for sequences of any length; its heads lie side by side in one axis. */
const GATED_DELTA = modelRule(gatedDelta, (l, inputs, _, output, others) => {
  const [R, T, H, D] = inputs.v.shape as [number, number, number, number];
  const flat = (x: Value) => l.model.node("Reshape", [l.get(x), l.longs(0, 0, -1)]);
  const { q, k, v, state, decay, beta } = inputs;
  const operands = [flat(q), flat(k), flat(v), l.get(state), l.get(decay), l.get(beta)];
  const attributes = { q_num_heads: H, kv_num_heads: H, update_rule: "gated_delta" };
  const scaled = { ...attributes, scale: { float: 1 } };
  const joined = l.model.node("LinearAttention", operands, scaled, { domain: CONTRIB, others });
  l.model.node("Reshape", [joined, l.size({ type: "i64", data: [R, T, H, D] })], {}, { output });
});

/**
 * log Σ exp x from the softmax of x: the largest share is exp(max x) / Σ exp x.
 */
function logSumExpOf(l: Lowering, logits: Value, shares: string): string {
  const largestLogit = l.model.node("ReduceMax", [l.get(logits), l.longs(-1)], { keepdims: 0 });
  const largest = l.model.node("ReduceMax", [shares, l.longs(-1)], { keepdims: 0 });
  return l.model.node("Sub", [largestLogit, l.model.node("Log", [largest])]);
}

/**
 * log Σ exp x of rows by the library, which adds in f32 one after the other: over a whole vocabulary small
 * terms get lost beside a large one, up to 2e-4. So rows are cut into parts, and those summed.
 */
function wholeLogSumExp(l: Lowering, logits: string, columns: number): string {
  let part = Math.floor(Math.sqrt(columns));
  while (columns % part !== 0) part--;
  const parts = l.model.node("Reshape", [logits, l.longs(0, -1, part)]);
  const totals = l.model.node("ReduceLogSumExp", [parts, l.longs(-1)], { keepdims: 0 });
  return l.model.node("ReduceLogSumExp", [totals, l.longs(-1)], { keepdims: 0 });
}

/**
 * The library's own log Σ exp takes as long as three other passes; where the softmax is computed anyway,
 * as in training, two are enough. Without `hasLogSumExp` it is always computed, since not every
 * provider's operator bears large numbers.
 */
export function tokenLogprobsRule({ hasLogSumExp }: { hasLogSumExp: boolean }): Rule {
  return modelRule(tokenLogprobs, (l, inputs, _, output) => {
    const [logits, targets] = [l.get(inputs.logits), l.get(inputs.targets)];
    const axes = l.longs(-1);
    let shares = l.softmaxOf(inputs.logits);
    if (!hasLogSumExp) shares ??= l.model.node("Softmax", [logits], { axis: -1 });
    const total = shares
      ? logSumExpOf(l, inputs.logits, shares)
      : wholeLogSumExp(l, logits, inputs.logits.shape.at(-1)!);
    const column = l.model.node("Unsqueeze", [targets, axes]);
    const picked = l.model.node("GatherElements", [logits, column], { axis: -1 });
    const chosen = l.model.node("Squeeze", [picked, axes]);
    l.model.node("Sub", [chosen, total], {}, { output });
  });
}

/** Model ops that are not expanded, by name. */
export const MODEL_RULES: RulesByName<Rule> = {
  linear: linearRule("f32"),
  embedding: EMBEDDING,
  rms_norm: RMS_NORM,
  rope: ROPE,
  softmax: SOFTMAX,
  silu: SILU,
  swiglu: SWIGLU,
  stream_weights: STREAM_WEIGHTS,
  causal_conv: CAUSAL_CONV,
  gated_delta: GATED_DELTA,
  token_logprobs: tokenLogprobsRule({ hasLogSumExp: true }),
};
