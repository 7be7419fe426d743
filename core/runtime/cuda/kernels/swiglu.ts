/** silu and swiglu, and their gradients. */
import backwardText from "../../../../kernels/backward/swiglu.cu" with { type: "text" };
import forwardText from "../../../../kernels/forward/swiglu.cu" with { type: "text" };
import { elementCount } from "../../../graph/types.ts";
import { silu, swiglu } from "../../../ops/activation.ts";
import { each, kernel, kernelFile, perPack } from "./define.ts";
import { gradientRule, once, type Rule, rule } from "./rule.ts";

export const SWIGLU = kernelFile("forward/swiglu.cu", forwardText);
export const SWIGLU_BACKWARD = kernelFile("backward/swiglu.cu", backwardText);

const packed = (sizes: Record<string, number>) => each(sizes.count!, perPack(sizes));

const siluForward = kernel(SWIGLU, "silu *y *x count:i64", packed);
const swigluForward = kernel(SWIGLU, "swiglu *y *gate *up count:i64", packed);
const siluBackward = kernel(SWIGLU_BACKWARD, "silu_backward *dx *dy *x count:i64", packed);
const swigluBackward = kernel(
  SWIGLU_BACKWARD,
  "swiglu_backward *dgate *dup *dy *gate *up count:i64",
  packed,
);

export const SWIGLU_RULES: readonly Rule[] = [
  rule(silu, (l, inputs) => {
    const x = l.operand(inputs.x);
    const scalars = { count: elementCount(x.shape) };
    return l.launch(siluForward, { reads: { x }, writes: { y: x }, scalars, reuse: "x" });
  }),
  gradientRule(silu, (l, inputs, { upstream }) => ({
    x() {
      const x = l.operand(inputs.x);
      return l.launch(siluBackward, {
        reads: { dy: l.operand(upstream), x },
        writes: { dx: x },
        scalars: { count: elementCount(x.shape) },
        reuse: "dy",
      })[0]!;
    },
  })),
  rule(swiglu, (l, inputs) => {
    const gate = l.operand(inputs.gate), up = l.operand(inputs.up);
    return l.launch(swigluForward, {
      reads: { gate, up },
      writes: { y: gate },
      scalars: { count: elementCount(gate.shape) },
      reuse: "gate",
    });
  }),
  gradientRule(swiglu, (l, inputs, { upstream }) => {
    const both = once(() => {
      const gate = l.operand(inputs.gate), up = l.operand(inputs.up);
      return l.launch(swigluBackward, {
        reads: { dy: l.operand(upstream), gate, up },
        writes: { dgate: gate, dup: up },
        scalars: { count: elementCount(gate.shape) },
      });
    });
    return { gate: () => both()[0]!, up: () => both()[1]! };
  }),
];
