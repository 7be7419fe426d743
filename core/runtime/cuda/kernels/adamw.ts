/** A step of AdamW, in place where its results are assigned to its inputs. */
import text from "../../../../kernels/optimizer/adamw.cu" with { type: "text" };
import { elementCount } from "../../../graph/types.ts";
import type { Value } from "../../../graph/value.ts";
import { adamw } from "../../../ops/adamw.ts";
import { adamwInPlace } from "../fuse/in_place.ts";
import { each, kernel, kernelFile } from "./define.ts";
import { ownCopy } from "./movement.ts";
import { type Rule, rule } from "./rule.ts";

export const ADAMW = kernelFile("optimizer/adamw.cu", text, [{}]);

const step = kernel(
  ADAMW,
  "adamw *parameter *m *v *gradient *scale *decay *stepSize *correction count:i64 beta1:f32 " +
    "beta2:f32 epsilon:f32",
  ({ count }) => each(count!),
);

export const ADAMW_RULES: readonly Rule[] = [adamw, adamwInPlace].map((op) =>
  rule(op, (l, inputs, attributes) => {
    const { gradient, scale, decay, stepSize, correction } = inputs;
    const own = (value: Value) => op === adamw ? ownCopy(l, value) : l.get(value);
    const parameter = own(inputs.parameter);
    return l.launch(step, {
      updates: { parameter, m: own(inputs.m), v: own(inputs.v) },
      reads: {
        ...{ gradient: l.f32(gradient), scale: l.f32(scale), decay: l.f32(decay) },
        ...{ stepSize: l.f32(stepSize), correction: l.f32(correction) },
      },
      scalars: { count: elementCount(parameter.shape), ...attributes },
    });
  })
);
