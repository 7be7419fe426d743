/**
 * Gradients of model ops as launches.
 *
 * A node's inputs are those of the op, then the op's output, then the upstream gradient; its outputs
 * are the gradients that are wanted, in the order of the inputs.
 */
import { elementCount } from "../../../graph/types.ts";
import type { Value } from "../../../graph/value.ts";
import { PARTIAL_ROWS } from "../kernels/backward.ts";
import { inputGradientProduct, weightGradientProduct } from "../products.ts";
import { attentionGradient } from "./attention.ts";
import { rowsOf } from "./forward.ts";
import { f32, gradientRule, sumPartials } from "./gradient_rule.ts";
import type { Lowering, Rule } from "./lowering.ts";

const embedding = gradientRule((l, { inputs: [table, ids], upstream }) => () => {
  const [size, inner] = table!.shape as [number, number];
  return l.launch("scatter_add", {
    updates: { y: l.zeros(f32(size, inner)) },
    reads: { indices: l.get(ids!), update: l.wide(upstream) },
    numbers: { outer: 1, size, count: elementCount(ids!.shape), inner },
  })[0]!;
});

const repeatStreams = gradientRule((l, { inputs: [x], upstream, attributes }) => () =>
  l.launch("sum_streams", {
    reads: { dy: l.element(upstream) },
    writes: { dx: l.elements(x!.shape) },
    numbers: { count: elementCount(x!.shape), P: attributes.streams as number },
  })[0]!
);

const rmsNorm = gradientRule((l, { inputs: [source, weight], output, upstream }) => (input) => {
  const [rows, C] = rowsOf(source!.shape);
  const reads = { dy: l.element(upstream), x: l.element(source!), inverse: l.savedBy(output) };
  if (input === 0) {
    return l.launch("rms_norm_backward", {
      reads: { ...reads, weight: l.element(weight!), residual: undefined },
      writes: { dx: l.elements(source!.shape) },
      numbers: { rows, C },
      reuse: "dy",
    })[0]!;
  }
  const partial = l.launch("rms_norm_weight", {
    reads,
    writes: { partial: f32(Math.ceil(rows / PARTIAL_ROWS), C) },
    numbers: { rows, C },
  });
  return sumPartials(l, partial[0]!);
});

const linear = gradientRule((l, { inputs: [x, weight], upstream }) => (input) => {
  const [M, K] = x!.shape as [number, number];
  const N = weight!.shape[0]!;
  const dy = l.element(upstream);
  if (input === 0) {
    const shape = inputGradientProduct(M, N, K, l.elementType);
    return l.product(shape, [l.element(weight!), dy], l.elements(x!.shape));
  }
  if (input === 1) {
    const shape = weightGradientProduct(M, N, K, l.elementType);
    return l.product(shape, [l.element(x!), dy], f32(N, K));
  }
  const partial = l.launch("bias_partials", {
    reads: { dy },
    writes: { partial: f32(Math.ceil(M / PARTIAL_ROWS), N) },
    numbers: { rows: M, N },
  });
  return sumPartials(l, partial[0]!);
});

/** The rotation back, by the negative angle. */
const rope = gradientRule((l, call) => (input) => {
  const { inputs: [x, cosines, sines], upstream, attributes } = call;
  if (input !== 0) throw new TypeError(`cannot differentiate "rope" by its tables`);
  const heads = attributes.heads as number;
  const [rows, width] = rowsOf(x!.shape);
  return l.launch("rope", {
    reads: { x: l.element(upstream), cosines: l.wide(cosines!), sines: l.wide(sines!) },
    writes: { y: l.elements(x!.shape) },
    numbers: { rows, heads, half: width / heads / 2, direction: -1 },
  })[0]!;
});

const softmax = gradientRule((l, { output, upstream }) => () =>
  streamWeightsGradient(l, l.wide(output), upstream, 0, false)
);

const streamWeights = gradientRule((l, { output, upstream, attributes }) => () =>
  streamWeightsGradient(l, l.wide(output), upstream, attributes.smoothing as number, true)
);

function streamWeightsGradient(
  l: Lowering,
  weights: Value,
  upstream: Value,
  smoothing: number,
  elements: boolean,
): Value {
  const [N, P] = rowsOf(weights.shape);
  return l.launch("stream_weights_backward", {
    reads: { dweights: l.wide(upstream), weights },
    writes: { dscores: elements ? l.elements(weights.shape) : weights },
    numbers: { N, P, smoothing },
    ...(elements ? {} : { macros: { BF16: 0 } }),
  })[0]!;
}

const silu = gradientRule((l, { inputs: [x], upstream }) => () =>
  l.launch("silu_backward", {
    reads: { dy: l.element(upstream), x: l.element(x!) },
    writes: { dx: l.elements(x!.shape) },
    numbers: { count: elementCount(x!.shape) },
    reuse: "dy",
  })[0]!
);

const swiglu = gradientRule((l, { inputs, upstream }) => {
  const [gate, up] = inputs.map((value) => l.element(value)) as [Value, Value];
  const both = l.launch("swiglu_backward", {
    reads: { dy: l.element(upstream), gate, up },
    writes: { dgate: gate, dup: up },
    numbers: { count: elementCount(gate.shape) },
  });
  return (input) => both[input]!;
});

const mixStreams = gradientRule((l, { inputs: [source, weights], upstream }) => {
  const [P, N, C] = source!.shape as [number, number, number];
  const both = l.launch("mix_streams_backward", {
    reads: { dy: l.element(upstream), x: l.element(source!), weights: l.wide(weights!) },
    writes: { dx: l.elements(source!.shape), dweights: f32(N, P) },
    numbers: { P, N, C },
  });
  return (input) => both[input]!;
});

const tokenLogprobs = gradientRule((l, { inputs: [logits, targets], output, upstream }) => () => {
  const [N, V] = rowsOf(logits!.shape);
  return l.launch("token_logprobs_backward", {
    reads: {
      dy: l.wide(upstream),
      logits: l.element(logits!),
      targets: l.get(targets!),
      normalizer: l.savedBy(output),
    },
    writes: { dlogits: l.elements(logits!.shape) },
    numbers: { N, V },
    reuse: "logits",
  })[0]!;
});

/** Rules by op name. */
export const GRADIENT_RULES: Readonly<Record<string, Rule>> = Object.fromEntries(
  Object.entries({
    embedding,
    repeat_streams: repeatStreams,
    rms_norm: rmsNorm,
    linear,
    rope,
    attention: attentionGradient,
    softmax,
    silu,
    swiglu,
    stream_weights: streamWeights,
    mix_streams: mixStreams,
    token_logprobs: tokenLogprobs,
  }).map(([name, rule]) => [`gradient of ${name}`, rule]),
);
