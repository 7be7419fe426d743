/** Model ops as launches; the gradients are in `gradients.ts`. */
import { elementCount, type Shape, type Value } from "../../../graph/types.ts";
import { LINEAR_ROWS } from "../kernel_table.ts";
import { linearProduct } from "../products.ts";
import { attentionCall } from "./attention_call.ts";
import { ownCopy } from "./primitives.ts";
import type { Rule } from "./rules.ts";
import { toDense } from "./strides.ts";

/** Rows up to which reading the weights is all the work, and the kernel does it as well as any. */
const SKINNY_ROWS = 64;

/** Rows and width of a tensor whose last axis is one row. */
export function rowsOf(shape: Shape): [rows: number, width: number] {
  return [elementCount(shape.slice(0, -1)), shape.at(-1)!];
}

const embedding: Rule = (l, { inputs: [table, ids], outputs: [y] }) => {
  const [V, C] = table!.shape as [number, number];
  return l.launch("embedding", {
    reads: { table: l.element(table!), ids: l.get(ids!) },
    writes: { y: l.elements(y!.shape) },
    numbers: { tokens: elementCount(ids!.shape), C, V },
  });
};

const repeatStreams: Rule = (l, { inputs: [source], outputs: [y], attributes }) => {
  const x = l.get(source!);
  const count = elementCount(x.shape);
  const shape = [attributes.streams as number, count];
  const rows = l.copy(x, { dtype: x.dtype, shape: y!.shape }, toDense(shape, [0, 1]));
  return [rows];
};

const rmsNorm: Rule = (l, node) => {
  const [source, weight] = node.inputs as [Value, Value];
  const [output] = node.outputs as [Value];
  const [rows, C] = rowsOf(source.shape);
  const saves = l.isDifferentiated(node);
  const [y, inverse] = l.launch("rms_norm", {
    reads: { x: l.element(source), weight: l.element(weight) },
    writes: {
      y: l.elements(source.shape),
      inverse: saves ? { dtype: "f32", shape: [rows] } : undefined,
    },
    numbers: { rows, C, epsilon: node.attributes.epsilon as number },
  });
  if (saves) l.save(output, inverse!);
  return [y!];
};

const linear: Rule = (l, { inputs, outputs: [y] }) => {
  const [x, weight, bias] = inputs.map((value) => l.element(value)) as [Value, Value, Value?];
  const [M, K] = x.shape as [number, number];
  const N = weight.shape[0]!;
  const type = l.elements(y!.shape);
  if (M > SKINNY_ROWS) {
    return [l.product(linearProduct(M, N, K, l.elementType, !!bias), [weight, x, bias], type)];
  }
  const wide = l.isOutput(y!); // such as logits, which lose nothing then
  return l.launch("linear", {
    reads: { x, weight, bias },
    writes: { y: wide ? y! : type },
    numbers: { M, N, K },
    macros: {
      ROWS: LINEAR_ROWS.find((rows) => M <= rows) ?? LINEAR_ROWS.at(-1)!,
      WIDE: Number(wide && l.elementType === "bf16"),
    },
  });
};

const rope: Rule = (l, { inputs: [source, cosines, sines], outputs: [y], attributes }) => {
  const heads = attributes.heads as number;
  const [rows, width] = rowsOf(source!.shape);
  return l.launch("rope", {
    reads: { x: l.element(source!), cosines: l.wide(cosines!), sines: l.wide(sines!) },
    writes: { y: l.elements(y!.shape) },
    numbers: { rows, heads, half: width / heads / 2, direction: 1 },
    reuse: "x",
  });
};

const attention: Rule = (l, node) => {
  const { reads, numbers, macros } = attentionCall(l, node.inputs, !!node.attributes.packed);
  const [y] = node.outputs as [Value];
  const { rows, T, K, G } = numbers as Record<string, number>;
  const saves = l.isDifferentiated(node);
  const [out, normalizer] = l.launch("attention", {
    reads,
    writes: {
      out: l.elements(y.shape),
      normalizer: saves ? { dtype: "f32", shape: [rows!, T!, K! * G!] } : undefined,
    },
    numbers,
    macros,
  });
  if (saves) l.save(y, normalizer!);
  return [out!];
};

/** Few scores a row: the weights of streams without smoothing. */
const softmax: Rule = (l, { inputs: [x] }) => {
  const [N, P] = rowsOf(x!.shape);
  return l.launch("stream_weights", {
    reads: { scores: l.wide(x!) },
    writes: { weights: x! },
    numbers: { N, P, smoothing: 0 },
    macros: { BF16: 0 },
  });
};

const silu: Rule = (l, { inputs: [source] }) => {
  const x = l.element(source!);
  const numbers = { count: elementCount(x.shape) };
  return l.launch("silu", { reads: { x }, writes: { y: x }, numbers, reuse: "x" });
};

const swiglu: Rule = (l, { inputs }) => {
  const [gate, up] = inputs.map((value) => l.element(value)) as [Value, Value];
  return l.launch("swiglu", {
    reads: { gate, up },
    writes: { y: gate },
    numbers: { count: elementCount(gate.shape) },
    reuse: "gate",
  });
};

const streamWeights: Rule = (l, { inputs: [scores], outputs: [y], attributes }) => {
  const [N, P] = rowsOf(scores!.shape);
  return l.launch("stream_weights", {
    reads: { scores: l.element(scores!) },
    writes: { weights: y! },
    numbers: { N, P, smoothing: attributes.smoothing as number },
  });
};

const mixStreams: Rule = (l, { inputs: [source, weights], outputs: [y] }) => {
  const [P, N, C] = source!.shape as [number, number, number];
  return l.launch("mix_streams", {
    reads: { x: l.element(source!), weights: l.wide(weights!) },
    writes: { y: l.elements(y!.shape) },
    numbers: { P, N, C },
  });
};

const tokenLogprobs: Rule = (l, node) => {
  const [logits, targets] = node.inputs as [Value, Value];
  const [y] = node.outputs as [Value];
  const [N, V] = rowsOf(logits.shape);
  const saves = l.isDifferentiated(node);
  const [logprobs, normalizer] = l.launch("token_logprobs", {
    reads: { logits: l.element(logits), targets: l.get(targets) },
    writes: { logprobs: y, normalizer: saves ? y : undefined },
    numbers: { N, V },
  });
  if (saves) l.save(y, normalizer!);
  return [logprobs!];
};

/** Where the new values are assigned to the old, as in training, the kernel overwrites these. */
const adamw: Rule = (l, { inputs, outputs, attributes }) => {
  const updates = outputs.map((value, i) =>
    l.destination(value) === inputs[i] ? l.get(inputs[i]!) : ownCopy(l, inputs[i]!)
  );
  const [gradient, scale, decay, stepSize, correction] = inputs.slice(3).map((x) => l.wide(x));
  const [parameter, m, v] = updates as [Value, Value, Value];
  return l.launch("adamw", {
    updates: { parameter, m, v },
    reads: { gradient, scale, decay, stepSize, correction },
    numbers: {
      count: elementCount(parameter.shape),
      ...attributes as { beta1: number; beta2: number; epsilon: number },
    },
  });
};

/** Rules by op name. */
export const FORWARD_RULES: Readonly<Record<string, Rule>> = {
  embedding,
  repeat_streams: repeatStreams,
  rms_norm: rmsNorm,
  linear,
  rope,
  attention,
  softmax,
  silu,
  swiglu,
  stream_weights: streamWeights,
  mix_streams: mixStreams,
  token_logprobs: tokenLogprobs,
  adamw,
};
