/** Lowers programs to launches: what has no rule is expanded, the rest is fused, each op has its rule. */
import { prepare } from "../../graph/rewrite.ts";
import type { Program } from "../../graph/program.ts";
import { fuse, isFused } from "./fuse.ts";
import { RULES } from "./kernels/mod.ts";
import type { Choices, Lowered } from "./lowered.ts";
import { Lowering } from "./lowering.ts";
import type { ElementType } from "./tensor.ts";

/** Lowers a program. `isFixed` tells whether a parameter is a constant weight. */
export function lower(
  program: Program,
  elements: ElementType,
  isFixed: (name: string) => boolean,
  choices: Choices = {},
): Lowered {
  const source = fuse(prepare(program, (op) => RULES.has(op) || isFused(op)), elements);
  const lowering = new Lowering(source, elements, isFixed, choices);
  for (const node of source.nodes) {
    const rule = RULES.get(node.op);
    if (!rule) throw new TypeError(`no rule to lower "${node.op.name}"`);
    const results = rule.lower(lowering, node);
    node.outputs.forEach((value, i) => results[i] && lowering.set(value, results[i]));
  }
  return lowering.finish();
}
