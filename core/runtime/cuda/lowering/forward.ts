/** Model ops as launches; the gradients are in `gradients.ts`. */
import { elementCount, type Shape } from "../../../graph/types.ts";
import type { Value } from "../../../graph/value.ts";
import { linear, swiglu } from "./linear.ts";
import { attention } from "./attention.ts";
import { rope } from "./rotation.ts";
import type { Lowering, Rule } from "./lowering.ts";
import { ownCopy } from "./primitives.ts";
import { toDense } from "./strides.ts";

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
  const writes = {
    y: l.elements(source.shape),
    inverse: saves ? { dtype: "f32", shape: [rows] } as const : undefined,
  };
  const numbers = { rows, C, epsilon: node.attributes.epsilon as number };
  const terms = joinedTerms(l, source);
  const reads = { weight: l.element(weight) };
  const [y, ...rest] = terms
    ? l.launch("add_rms_norm", {
      reads: { ...reads, x: terms[0], residual: terms[1] },
      writes: { y: writes.y, sum: l.elements(source.shape), inverse: writes.inverse },
      numbers,
    })
    : l.launch("rms_norm", { reads: { ...reads, x: l.element(source) }, writes, numbers });
  if (terms) l.replace(source, rest[0]!);
  if (saves) l.save(output, rest.at(-1)!);
  return [y!];
};

/** What a residual stream is the sum of, where the norm is the first to read it and may add it up. */
function joinedTerms(l: Lowering, source: Value): readonly [Value, Value] | undefined {
  const maker = l.maker(source);
  const [a, b] = maker?.inputs ?? [];
  if (maker?.op.name !== "add" || a!.shape.join() !== b!.shape.join()) return undefined;
  if (l.readers(source)[0]?.op.name !== "rms_norm" || l.isOutput(source)) return undefined;
  return [l.element(a!), l.element(b!)];
}

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

const sample: Rule = (l, { inputs: [logits, sampling], outputs: [tokens] }) => {
  const [N, V] = rowsOf(logits!.shape);
  return l.launch("sample", {
    reads: { logits: l.wide(logits!), sampling: l.wide(sampling!) },
    writes: { tokens: tokens! },
    numbers: { N, V },
  });
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
  sample,
  adamw,
};
