/** silu and swiglu, and their gradients. */
import backwardText from "../../../../kernels/backward/swiglu.cu" with { type: "text" };
import forwardText from "../../../../kernels/forward/swiglu.cu" with { type: "text" };
import { elementCount } from "../../../graph/types.ts";
import type { Value } from "../../../graph/value.ts";
import { silu, swiglu } from "../../../ops/activation.ts";
import type { Lowering } from "../lowering.ts";
import { each, kernel, kernelFile, perPack } from "./define.ts";
import { gradientRule, once, type Rule, rule } from "./rule.ts";

export const SWIGLU = kernelFile("forward/swiglu.cu", forwardText);
export const SWIGLU_BACKWARD = kernelFile("backward/swiglu.cu", backwardText);

const packed = (sizes: Record<string, number>) => each(sizes.count!, perPack(sizes));

const forward = kernel(SWIGLU, "swiglu", packed);
const backward = kernel(SWIGLU_BACKWARD, "swiglu_backward", packed);

/** silu without `up`. */
function activated(l: Lowering, gate: Value, up?: Value): Value[] {
  return l.launch(forward, {
    reads: { gate: l.operand(gate), up: up && l.operand(up) },
    writes: { y: l.type(gate.shape) },
    scalars: { count: elementCount(gate.shape) },
    reuse: "gate",
  });
}

function gradients(l: Lowering, upstream: Value, gate: Value, up?: Value): Value[] {
  return l.launch(backward, {
    reads: { dy: l.operand(upstream), gate: l.operand(gate), up: up && l.operand(up) },
    writes: { dgate: l.type(gate.shape), dup: up && l.type(up.shape) },
    scalars: { count: elementCount(gate.shape) },
  });
}

export const SWIGLU_RULES: readonly Rule[] = [
  rule(silu, (l, { x }) => activated(l, x)),
  gradientRule(silu, (l, { x }, { upstream }) => ({ x: () => gradients(l, upstream, x)[0]! })),
  rule(swiglu, (l, { gate, up }) => activated(l, gate, up)),
  gradientRule(swiglu, (l, { gate, up }, { upstream }) => {
    const both = once(() => gradients(l, upstream, gate, up));
    return { gate: () => both()[0]!, up: () => both()[1]! };
  }),
];
