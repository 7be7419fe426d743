/**
 * Attention keeps the logarithm of the sum of exponents of each query's scores for its gradient.
 *
 *   y = attention(x);  x̄ = gradient(x, y, ȳ)   →   y, n = attention with normalizer(x);  x̄ = …(x, y, ȳ, n)
 *
 * Computing it again would be another forward pass of attention, a quarter more of its time in training.
 * Other gradients read no statistic: they compute theirs from inputs that they read anyway.
 */
import { type GradientAttributes, gradientOp } from "../../../graph/differentiate.ts";
import type { Node, Op, Program } from "../../../graph/program.ts";
import { rebuild } from "../../../graph/rewrite.ts";
import { Uses } from "../../../graph/uses.ts";
import type { Value } from "../../../graph/value.ts";
import {
  type AttentionAttributes,
  attentionNormalizer,
  attentionOp,
} from "../../../ops/attention.ts";

const gradient = gradientOp(attentionOp);

/** attention with the normalizer [P·B, T, H] in f32 as second output */
export const attentionWithNormalizer: Op<AttentionAttributes> = {
  name: "attention with normalizer",
  infer(inputs, attributes) {
    const [output] = attentionOp.infer(inputs, attributes);
    const [, T, H] = inputs[0]!.shape;
    return [output!, { dtype: "f32", shape: [output!.shape[0]!, T!, H!] }];
  },
  decompose: (g, inputs, attributes) => [
    ...g.apply(attentionOp, inputs, attributes),
    attentionNormalizer(inputs, attributes),
  ],
};

/** The gradient of attention with the normalizer as last input. */
export const attentionGradient: Op<GradientAttributes> = {
  name: "gradient of attention with normalizer",
  infer: (inputs, attributes) => gradient.infer(inputs, attributes),
  decompose: (g, inputs, attributes) => g.apply(gradient, inputs.slice(0, -1), attributes),
};

/** Whether an op is the gradient of attention without a normalizer, of which the fusion leaves none. */
export function isPlainGradient(op: Op): boolean {
  return op === gradient;
}

/** Lets every attention whose gradient is computed keep its normalizer. */
export function keepNormalizers(program: Program): Program {
  const uses = new Uses(program);
  const kept = new Map<Value, Value>(); // by output of attention
  const gradientsOf = ({ op, outputs: [output] }: Node) =>
    op !== attentionOp
      ? []
      : uses.readers(output!).filter((reader) =>
        reader.op === gradient && reader.inputs.at(-2) === output
      );
  return rebuild(program, (g, node, inputs) => {
    if (gradientsOf(node).length > 0) {
      const [output, normalizer] = g.apply(attentionWithNormalizer, inputs, node.attributes);
      kept.set(output!, normalizer!);
      return [output!];
    }
    const normalizer = node.op === gradient ? kept.get(inputs.at(-2)!) : undefined;
    return normalizer
      ? g.apply(attentionGradient, [...inputs, normalizer], node.attributes)
      : g.apply(node.op, inputs, node.attributes);
  });
}
