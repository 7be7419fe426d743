/** What ends a step of generation: the best or a drawn token of each row, and its way to the host. */
import argmaxText from "../../../../kernels/forward/argmax.cu" with { type: "text" };
import publishText from "../../../../kernels/forward/publish.cu" with { type: "text" };
import sampleText from "../../../../kernels/forward/sample.cu" with { type: "text" };
import * as p from "../../../graph/primitives.ts";
import { sampleOp } from "../../../ops/sample.ts";
import { around, toDense } from "../strides.ts";
import { kernel, kernelFile, spread } from "./define.ts";
import { listRule, type Rule } from "./rule.ts";
import { rowsOf } from "./sums.ts";

export const ARGMAX = kernelFile("forward/argmax.cu", argmaxText);
export const SAMPLE = kernelFile("forward/sample.cu", sampleText, [{ BF16: 0 }]);
export const PUBLISH = kernelFile("forward/publish.cu", publishText, [{}]);

const argmaxKernel = kernel(ARGMAX, "argmax *index *x N V", ({ N }) => spread(512, N!));
const sample = kernel(SAMPLE, "sample *tokens *logits *sampling N V", ({ N }) => spread(1024, N!));
/** Words to memory of the host, which waits for them. */
export const publish = kernel(
  PUBLISH,
  "publish *slot *values count sequence",
  () => spread(256, 1),
);

/** Also a primitive, over any axis. */
export const argmax: Rule = listRule(p.argmax, (l, [source], { axis }, [index]) => {
  const [outer, n, inner] = around(source.shape, axis);
  const x = l.element(source);
  const shape = [outer, inner, n];
  const rows = inner === 1
    ? x
    : l.copy(x, { dtype: x.dtype, shape }, toDense(shape, [n * inner, 1, inner]));
  const numbers = { N: outer * inner, V: n };
  return l.launch(argmaxKernel, { reads: { x: rows }, writes: { index }, numbers });
});

export const SAMPLE_RULES: readonly Rule[] = [
  listRule(sampleOp, (l, [logits, sampling], _, [tokens]) => {
    const [N, V] = rowsOf(logits.shape);
    return l.launch(sample, {
      reads: { logits: l.wide(logits), sampling: l.wide(sampling) },
      writes: { tokens },
      numbers: { N, V },
    });
  }),
];
