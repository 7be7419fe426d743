/** A step of AdamW, where parameter and moments lie if nothing reads their old content. */
import text from "../../../../kernels/optimizer/adamw.cu" with { type: "text" };
import { elementCount } from "../../../graph/types.ts";
import { adamw } from "../../../ops/adamw.ts";
import { each, kernel, kernelFile } from "./define.ts";
import { type Rule, rule } from "./rule.ts";

export const ADAMW = kernelFile("optimizer/adamw.cu", text, [{}]);

const step = kernel(ADAMW, "adamw", ({ count }) => each(count!));

export const ADAMW_RULES: readonly Rule[] = [
  rule(adamw, (l, inputs, attributes, outputs) => {
    const { gradient, scale, decay, stepSize, correction } = inputs;
    const [parameter, m, v] = (["parameter", "m", "v"] as const).map((name, i) => {
      const target = l.target(outputs[i]!);
      return target && target === l.get(inputs[name]) ? target : l.ownCopy(inputs[name]);
    });
    return l.launch(step, {
      updates: { parameter: parameter!, m: m!, v: v! },
      reads: {
        ...{ gradient: l.f32(gradient), scale: l.f32(scale), decay: l.f32(decay) },
        ...{ stepSize: l.f32(stepSize), correction: l.f32(correction) },
      },
      scalars: { count: elementCount(inputs.parameter.shape), ...attributes },
    });
  }),
];
