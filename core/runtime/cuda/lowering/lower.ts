/** Lowers programs to launches, with one rule for every op. */
import type { Op, Program } from "../../../graph/program.ts";
import type { ElementType } from "../tensor.ts";
import { FORWARD_RULES } from "./forward.ts";
import { GRADIENT_RULES } from "./gradients.ts";
import { Lowering, type Rule } from "./lowering.ts";
import { PRIMITIVE_RULES } from "./primitives.ts";
import type { Choices, Lowered } from "./types.ts";

const RULES: Readonly<Record<string, Rule>> = {
  ...PRIMITIVE_RULES,
  ...FORWARD_RULES,
  ...GRADIENT_RULES,
};

/** Whether there is a rule for an op; others are expanded first. */
export function lowers(op: Op): boolean {
  return op.name in RULES;
}

/** Lowers a prepared program. `constant` tells whether a parameter is a constant weight. */
export function lower(
  program: Program,
  dtype: ElementType,
  constant: (name: string) => boolean,
  choices: Choices = {},
): Lowered {
  return new Lowering(program, dtype, constant, choices).run(RULES);
}
