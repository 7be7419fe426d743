/**
 * Statistics of the forward pass that gradients read instead of computing them again: the kernel of the
 * op leaves them in passing.
 *
 *   y = op(x);  x̄ = gradient of op(x, y, ȳ)   →   y, s = op with statistic(x);  x̄ = …(x, y, ȳ, s)
 */
import { type GradientAttributes, gradientOp } from "../../../graph/differentiate.ts";
import type { Node, Op, Program } from "../../../graph/program.ts";
import { rebuild } from "../../../graph/rewrite.ts";
import type { Attributes, Operands, TensorType } from "../../../graph/types.ts";
import { Uses } from "../../../graph/uses.ts";
import type { Value } from "../../../graph/value.ts";
import { attentionNormalizer, attentionOp } from "../../../ops/attention.ts";
import { rmsNorm, rootMeanSquare } from "../../../ops/rms_norm.ts";
import { logSumExp, tokenLogprobs } from "../../../ops/token_logprobs.ts";

/** What a kernel leaves, in f32, from the inputs of the op. */
interface Statistic<A extends Attributes> {
  infer(inputs: Operands<TensorType>, output: TensorType): TensorType;
  decompose(inputs: Operands<Value>, attributes: A): Value;
}

/** The op with its statistic as a second output, and its gradient with the statistic as last input. */
interface WithStatistic<A extends Attributes = Attributes> {
  readonly forward: Op<A>;
  readonly backward: Op<GradientAttributes>;
}

function withStatistic<A extends Attributes>(op: Op<A>, statistic: Statistic<A>): WithStatistic<A> {
  const gradient = gradientOp(op);
  return {
    forward: {
      name: `${op.name} with statistic`,
      infer(inputs: Operands<TensorType>, attributes) {
        const [output] = op.infer(inputs, attributes);
        return [output!, statistic.infer(inputs, output!)];
      },
      decompose: (g, inputs: Operands<Value>, attributes) => [
        ...g.apply(op, inputs, attributes),
        statistic.decompose(inputs, attributes),
      ],
    },
    backward: {
      name: `${gradient.name} with statistic`,
      infer: (inputs, attributes) => gradient.infer(inputs, attributes),
      decompose: (g, inputs, attributes) => g.apply(gradient, inputs.slice(0, -1), attributes),
    },
  };
}

/** rms_norm and the inverse of the root mean square of each row. */
export const rmsNormWithStatistic = withStatistic(rmsNorm.op, {
  infer: ([x]) => ({ dtype: "f32", shape: x.shape.slice(0, -1) }),
  decompose([x], { epsilon }) {
    const rms = rootMeanSquare(x, epsilon);
    return rms.graph.constant(1).div(rms).reshape(x.shape.slice(0, -1));
  },
});

/** attention and the logarithm of the sum of exponents of each query's scores. */
export const attentionWithStatistic = withStatistic(attentionOp, {
  infer([q], { shape: [rows] }) {
    const [, T, H] = q.shape;
    return { dtype: "f32", shape: [rows!, T!, H!] };
  },
  decompose: attentionNormalizer,
});

/** token_logprobs and the logarithm of the sum of exponents of each row. */
export const tokenLogprobsWithStatistic = withStatistic(tokenLogprobs.op, {
  infer: ([, targets]) => ({ dtype: "f32", shape: targets.shape }),
  decompose: ([logits]) => logSumExp(logits),
});

const ALL: ReadonlyMap<Op, WithStatistic> = new Map<Op, WithStatistic>([
  [rmsNorm.op, rmsNormWithStatistic],
  [attentionOp, attentionWithStatistic],
  [tokenLogprobs.op, tokenLogprobsWithStatistic],
]);

/** Lets every op whose gradient is computed leave its statistic. */
export function keepStatistics(program: Program): Program {
  const uses = new Uses(program);
  const kept = new Map<Value, Value>();
  const gradientsOf = (node: Node) =>
    uses.readers(node.outputs[0]!).filter((reader) =>
      reader.op === gradientOp(node.op) && reader.inputs.at(-2) === node.outputs[0]
    );
  const backward = new Map<Node, Op>();
  return rebuild(program, (g, node, inputs) => {
    const found = ALL.get(node.op);
    const gradients = found ? gradientsOf(node) : [];
    if (found && gradients.length > 0) {
      for (const gradient of gradients) backward.set(gradient, found.backward);
      const [output, statistic] = g.apply(found.forward, inputs, node.attributes);
      kept.set(output!, statistic!);
      return [output!];
    }
    const reads = backward.get(node);
    if (!reads) return g.apply(node.op, inputs, node.attributes);
    return g.apply(reads, [...inputs, kept.get(inputs.at(-2)!)!], node.attributes);
  });
}

/** Whether an op is the gradient of one that leaves a statistic, and so never stays as it is. */
export function readsStatistic(op: Op): boolean {
  return [...ALL.keys()].some((forward) => gradientOp(forward) === op);
}
