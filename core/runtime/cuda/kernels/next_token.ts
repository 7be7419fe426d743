/** The next token of each row: the largest logit, or a sampled one. */
import argmaxText from "../../../../kernels/forward/argmax.cu" with { type: "text" };
import sampleText from "../../../../kernels/forward/sample.cu" with { type: "text" };
import * as p from "../../../graph/primitives.ts";
import { sampleOp } from "../../../ops/sample.ts";
import { around, toDense } from "../strides.ts";
import { grid, kernel, kernelFile } from "./define.ts";
import { listRule, type Rule } from "./rule.ts";
import { rowsOf } from "./sums.ts";

export const ARGMAX = kernelFile("forward/argmax.cu", argmaxText);
export const SAMPLE = kernelFile("forward/sample.cu", sampleText, [{ BF16: 0 }]);

const argmaxKernel = kernel(ARGMAX, "argmax *index *x N V", ({ N }) => grid(512, N!));
const sample = kernel(SAMPLE, "sample *tokens *logits *sampling N V", ({ N }) => grid(1024, N!));

/** Also a primitive, over any axis. */
export const argmax: Rule = listRule(p.argmax, (l, [source], { axis }, [index]) => {
  const [outer, n, inner] = around(source.shape, axis);
  const x = l.operand(source);
  const shape = [outer, inner, n];
  const rows = inner === 1
    ? x
    : l.copy(x, { dtype: x.dtype, shape }, toDense(shape, [n * inner, 1, inner]));
  const scalars = { N: outer * inner, V: n };
  return l.launch(argmaxKernel, { reads: { x: rows }, writes: { index }, scalars });
});

export const SAMPLE_RULES: readonly Rule[] = [
  listRule(sampleOp, (l, [logits, sampling], _, [tokens]) => {
    const [N, V] = rowsOf(logits.shape);
    return l.launch(sample, {
      reads: { logits: l.f32(logits), sampling: l.f32(sampling) },
      writes: { tokens },
      scalars: { N, V },
    });
  }),
];
