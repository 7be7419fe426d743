/** The next token of each row, greedy or drawn. */
import text from "../../../../kernels/forward/sample.cu" with { type: "text" };
import { sampleOp } from "../../../ops/sample.ts";
import { grid, kernel, kernelFile } from "./define.ts";
import { rowsOf } from "./reduce.ts";
import { listRule, type Rule } from "./rule.ts";

export const SAMPLE = kernelFile("forward/sample.cu", text, [{ BF16: 0 }]);

const sample = kernel(SAMPLE, "sample", ({ N }) => grid(1024, N!));

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
