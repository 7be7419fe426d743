/** swiglu and its gradient. */
import backwardText from "../../../../kernels/backward/swiglu.cu" with { type: "text" };
import forwardText from "../../../../kernels/forward/swiglu.cu" with { type: "text" };
import { elementCount } from "../../../graph/types.ts";
import { swiglu } from "../../../ops/activation.ts";
import { each, kernel, kernelFile, perPack } from "./define.ts";
import { gradientRule, type Rule, rule } from "./rule.ts";

export const SWIGLU = kernelFile("forward/swiglu.cu", forwardText);
export const SWIGLU_BACKWARD = kernelFile("backward/swiglu.cu", backwardText);

const packed = (sizes: Record<string, number>) => each(sizes.count!, perPack(sizes));

const forward = kernel(SWIGLU, "swiglu", packed);
const backward = kernel(SWIGLU_BACKWARD, "swiglu_backward", packed);

export const SWIGLU_RULES: readonly Rule[] = [
  rule(swiglu, (l, { gate, up }) =>
    l.launch(forward, {
      reads: { gate: l.operand(gate), up: l.operand(up) },
      writes: { y: l.type(gate.shape) },
      scalars: { count: elementCount(gate.shape) },
      reuse: "gate",
    })),
  gradientRule(swiglu, (l, { gate, up }, { upstream }) => {
    const [dgate, dup] = l.launch(backward, {
      reads: { dy: l.operand(upstream), gate: l.operand(gate), up: l.operand(up) },
      writes: { dgate: l.type(gate.shape), dup: l.type(up.shape) },
      scalars: { count: elementCount(gate.shape) },
    });
    return { gate: dgate, up: dup };
  }),
];
