/**
 * One rule per op: which ONNX operators compute it.
 *
 * Primitives map almost one to one. Of the model ops only those are here for which ONNX Runtime has a
 * faster whole; attention is not among them, since its plain decomposition beats the library's fused
 * operators on the CPU (the query heads of one key head become rows of a single product).
 */
import type { PrimitiveName } from "../../../graph/primitives.ts";
import type { Shape } from "../../../graph/types.ts";
import type { Value } from "../../../graph/value.ts";
import type { OnnxType } from "../capi/capi.ts";
import type { Lowering, Rule, Target, WeightForm } from "./lower.ts";
import { packing, quantizedFormat } from "../../../base/quantize.ts";

const CONTRIB = "com.microsoft";

/** An operator with the same operands and no attributes. */
function same(type: string): Rule {
  return (l, node, output) => l.model.node(type, l.operands(node), {}, { output });
}

const matmul: Rule = (l, node, output) => {
  const { transposeA, transposeB, scale } = node.attributes as {
    transposeA: boolean;
    transposeB: boolean;
    scale: number;
  };
  const operands = l.operands(node);
  if (!transposeA && !transposeB && scale === 1) l.model.node("MatMul", operands, {}, { output });
  else {
    const attributes = {
      transA: Number(transposeA),
      transB: Number(transposeB),
      alpha: { float: scale },
    };
    l.model.node("FusedMatMul", operands, attributes, { output, domain: CONTRIB });
  }
};

/**
 * `Gemm` packs a constant matrix when the session is made; quantised matrices have their own op. With
 * f16 a fixed matrix is f16, and so is the product, between casts.
 */
export function linear(type: "f32" | "f16"): Rule {
  return (l, node, output) => {
    const [x, weight, bias] = node.inputs as [Value, Value, Value?];
    const isWeight = l.isParameter(weight);
    const half = type === "f16" && isWeight;
    const operand = (value: Value) => {
      if (!half) return l.get(value);
      return l.isParameter(value)
        ? l.weight(value, "matrix", type, value.shape)
        : l.as("f16", l.get(value));
    };
    const biases = bias ? [operand(bias)] : [];
    const widened = half ? {} : { output };
    let result: string;
    if (isWeight && l.options.matrices.kind !== "f32") {
      result = quantized(l, { x: operand(x), weight, biases, type }, widened.output);
    } else {
      const matrix = isWeight ? l.weight(weight, "matrix", type, weight.shape) : l.get(weight);
      result = l.model.node("Gemm", [operand(x), matrix, ...biases], { transB: 1 }, widened);
    }
    if (half) l.model.node("Cast", [result], { to: 1 }, { output });
  };
}

/** x Wᵀ + b with a weight in 8 or 4 bits; `type` is that of x, b and the scales. */
function quantized(
  l: Lowering,
  { x, weight, biases, type }: {
    x: string;
    weight: Value;
    biases: readonly string[];
    type: "f32" | "f16";
  },
  output: string | undefined,
): string {
  const { block } = quantizedFormat(l.options.matrices);
  const { rows: N, columns: K, bits, blocks } = packing(weight.shape, l.options.matrices);
  const packed = l.weight(weight, "blocks", "u8", [N, blocks, block * bits / 8]);
  const scales = l.weight(weight, "scales", type, [N * blocks]);
  const optional = biases.length > 0 ? ["", "", ...biases] : [];
  // Level 4 also rounds the activations of each block to 8 bits: several times faster.
  const attributes = { N, K, bits, block_size: block, accuracy_level: 4 };
  const inputs = [x, packed, scales, ...optional];
  return l.model.node("MatMulNBits", inputs, attributes, { output, domain: CONTRIB });
}

/**
 * The rows of a table that are read, widened; `keep` says how the table itself is kept, in which type
 * and form.
 */
export function embedding(
  keep: (l: Lowering, table: Value) => { readonly form: WeightForm; readonly type: OnnxType },
): Rule {
  return (l, node, output) => {
    const [table, ids] = node.inputs as [Value, Value];
    if (!l.isParameter(table)) return gather(l, { ...node, attributes: { axis: 0 } }, output);
    const { form, type } = keep(l, table);
    const weight = l.weight(table, form, type, table.shape);
    if (type === "f32") l.model.node("Gather", [weight, l.get(ids)], {}, { output });
    else {
      const rows = l.model.node("Gather", [weight, l.get(ids)]);
      l.model.node("Cast", [rows], { to: 1 }, { output });
    }
  };
}

const rmsNorm: Rule = (l, node, output) => {
  const epsilon = { float: node.attributes.epsilon as number };
  l.model.node("RMSNormalization", l.operands(node), { axis: -1, epsilon }, { output });
};

const rope: Rule = (l, node, output) => {
  const num_heads = node.attributes.heads as number;
  l.model.node("RotaryEmbedding", l.operands(node), { num_heads }, { output });
};

/** As it decomposes, but with ε/P from outside, so that models with other streams lower alike. */
const streamWeights: Rule = (l, node, output) => {
  const [scores] = node.inputs as [Value];
  const smoothing = node.attributes.smoothing as number;
  const weights = l.model.node("Softmax", [l.get(scores)], { axis: -1 });
  const kept = l.model.node("Mul", [weights, l.size({ type: "f32", data: [1 - smoothing] })]);
  const spread = l.size({ type: "f32", data: [smoothing / scores.shape.at(-1)!] });
  l.model.node("Add", [kept, spread], {}, { output });
};

/** x σ(x) in one pass; the standard operator, Swish, has no kernel of its own and runs as three. */
const silu: Rule = (l, node, output) => {
  const alpha = { float: 1 };
  l.model.node("QuickGelu", l.operands(node), { alpha }, { output, domain: CONTRIB });
};

const swiglu: Rule = (l, node, output) => {
  const [gate, up] = l.operands(node) as [string, string];
  const activated = l.model.node("QuickGelu", [gate], { alpha: { float: 1 } }, { domain: CONTRIB });
  l.model.node("Mul", [activated, up], {}, { output });
};

/**
 * log Σ exp x from the softmax of x: the largest share is exp(max x) / Σ exp x.
 */
function logSumExpOf(l: Lowering, logits: Value, shares: string): string {
  const peak = l.model.node("ReduceMax", [l.get(logits), l.longs(-1)], { keepdims: 0 });
  const largest = l.model.node("ReduceMax", [shares, l.longs(-1)], { keepdims: 0 });
  return l.model.node("Sub", [peak, l.model.node("Log", [largest])]);
}

/**
 * The library's own log Σ exp takes as long as three other passes; where the softmax is computed anyway,
 * as in training, two are enough. Without `hasLogSumExp` it is always computed, since not every
 * provider's operator bears large numbers.
 */
export function tokenLogprobs({ hasLogSumExp }: { hasLogSumExp: boolean }): Rule {
  return (l, node, output) => {
    const [logits, targets] = l.operands(node) as [string, string];
    const axes = l.longs(-1);
    let shares = l.softmaxOf(node.inputs[0]!);
    if (!hasLogSumExp) shares ??= l.model.node("Softmax", [logits], { axis: -1 });
    const total = shares
      ? logSumExpOf(l, node.inputs[0]!, shares)
      : l.model.node("ReduceLogSumExp", [logits, axes], { keepdims: 0 });
    const column = l.model.node("Unsqueeze", [targets, axes]);
    const picked = l.model.node("GatherElements", [logits, column], { axis: -1 });
    const chosen = l.model.node("Squeeze", [picked, axes]);
    l.model.node("Sub", [chosen, total], {}, { output });
  };
}

const cast: Rule = (l, node, output) => {
  const to =
    { f32: 1, i32: 6, bool: 9, bf16: 16, f16: 10 }[node.attributes.dtype as OnnxType & "f32"];
  l.model.node("Cast", l.operands(node), { to }, { output });
};

const constant: Rule = (l, node, output) => {
  const { dtype, shape, data } = node.attributes as {
    dtype: "f32" | "i32";
    shape: Shape;
    data: number[];
  };
  const values = dtype === "f32" ? Float32Array.from(data) : Int32Array.from(data);
  l.model.constant(output, dtype, shape, values);
};

const iota: Rule = (l, node, output) => {
  const data = Array.from({ length: node.attributes.length as number }, (_, i) => i);
  l.model.node("Identity", [l.size({ type: "i32", data })], {}, { output });
};

function reduction(type: string): Rule {
  return (l, node, output) => {
    const axes = l.longs(node.attributes.axis as number);
    l.model.node(type, [...l.operands(node), axes], { keepdims: 1 }, { output });
  };
}

const argmax: Rule = (l, node, output) => {
  const axis = node.attributes.axis as number;
  const index = l.model.node("ArgMax", l.operands(node), { axis, keepdims: 1 });
  l.model.node("Cast", [index], { to: 6 }, { output });
};

function toShape(type: string): Rule {
  return (l, node, output) => {
    const shape = l.size({ type: "i64", data: node.outputs[0]!.shape });
    l.model.node(type, [...l.operands(node), shape], {}, { output });
  };
}

const transpose: Rule = (l, node, output) => {
  l.model.node("Transpose", l.operands(node), { perm: node.attributes.order as number[] }, {
    output,
  });
};

const slice: Rule = (l, node, output) => {
  const { axis, start, end } = node.attributes as Record<string, number>;
  const bound = (position: number) => l.size({ type: "i64", data: [position] });
  const bounds = [bound(start!), bound(end!), l.longs(axis!)];
  l.model.node("Slice", [...l.operands(node), ...bounds], {}, { output });
};

function alongAxis(type: string): Rule {
  return (l, node, output) => {
    const axis = node.attributes.axis as number;
    l.model.node(type, l.operands(node), { axis }, { output });
  };
}

const gather = alongAxis("Gather");

const takeLast: Rule = (l, node, output) => {
  const [x, indices] = l.operands(node) as [string, string];
  const column = l.model.node("Unsqueeze", [indices, l.longs(-1)]);
  const picked = l.model.node("GatherElements", [x, column], { axis: -1 });
  l.model.node("Squeeze", [picked, l.longs(-1)], {}, { output });
};

/**
 * ScatterElements, whose sums are exact; ScatterND loses additions to the same index when it runs on
 * several threads. It wants one index per element, so the indices are spread over the entries.
 */
const scatterAdd: Rule = (l, node, output) => {
  const [x, indices, update] = l.operands(node) as [string, string, string];
  const axis = node.attributes.axis as number;
  const { shape } = node.inputs[0]!;
  const around = shape.map((_, i) => i).filter((i) => i !== axis);
  // Several axes of indices count as one, which the entries then have in their place.
  const flat = l.model.node("Reshape", [indices, l.longs(-1)]);
  const spread = l.model.node("Unsqueeze", [flat, l.longs(...around)]);
  const entries = shape.map((size, i) => i === axis ? -1 : size);
  const entryShape = l.size({ type: "i64", data: entries });
  const list = l.model.node("Reshape", [update, entryShape]);
  const each = l.model.node("Expand", [spread, l.model.node("Shape", [list])]);
  l.model.node("ScatterElements", [x, each, list], { axis, reduction: "add" }, { output });
};

const addLast: Rule = (l, node, output) => {
  const [x, indices, update] = l.operands(node) as [string, string, string];
  const column = l.model.node("Unsqueeze", [indices, l.longs(-1)]);
  const values = l.model.node("Unsqueeze", [update, l.longs(-1)]);
  l.model.node("ScatterElements", [x, column, values], { axis: -1, reduction: "add" }, { output });
};

/** The output is bound to the buffer's memory; `Lowering` checks that the buffer is not read late. */
const assign: Rule = (l, node, output) => {
  l.model.node("Identity", [l.get(node.inputs[1]!)], {}, { output });
};

/** Copies nothing when the output is bound to the memory of the buffer. */
const writeSlots: Rule = (l, node, output) => {
  const [buffer, update, start] = l.operands(node) as [string, string, string];
  l.model.node("TensorScatter", [buffer, update, l.as("i64", start)], { axis: 2 }, { output });
};

/** The compiler checks that no primitive is missing. */
const rules: Readonly<Record<PrimitiveName, Rule>> & Readonly<Record<string, Rule>> = {
  linear: linear("f32"),
  // As the checkpoint stores it, and in its file.
  embedding: embedding((l, table) => ({ form: "stored", type: l.storedType(table) })),
  rms_norm: rmsNorm,
  rope,
  softmax: (l, node, output) => l.model.node("Softmax", l.operands(node), { axis: -1 }, { output }),
  silu,
  swiglu,
  stream_weights: streamWeights,
  token_logprobs: tokenLogprobs({ hasLogSumExp: true }),

  add: same("Add"),
  sub: same("Sub"),
  mul: same("Mul"),
  div: same("Div"),
  less_equal: same("LessOrEqual"),
  select: same("Where"),
  exp: same("Exp"),
  log: same("Log"),
  sqrt: same("Sqrt"),
  sin: same("Sin"),
  cos: same("Cos"),
  sigmoid: same("Sigmoid"),
  cast,
  constant,
  iota,
  sum: reduction("ReduceSum"),
  max: reduction("ReduceMax"),
  argmax,
  matmul,
  reshape: toShape("Reshape"),
  broadcast: toShape("Expand"),
  recompute: same("Identity"),
  transpose,
  slice,
  concat: alongAxis("Concat"),
  gather,
  take_last: takeLast,
  scatter_add: scatterAdd,
  add_last: addLast,
  assign,
  write_slots: writeSlots,
};

/** The processor. */
export const CPU_TARGET: Target = { rules, writesOverOperands: true };
