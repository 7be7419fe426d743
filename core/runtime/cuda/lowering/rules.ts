/** The rule of every op. */
import type { Node, Value } from "../../../graph/types.ts";
import { FORWARD_RULES } from "./forward.ts";
import { GRADIENT_RULES } from "./gradients.ts";
import type { Lowering } from "./lowering.ts";
import { PRIMITIVE_RULES } from "./primitives.ts";

/** Lowers a node and returns its results. */
export type Rule = (l: Lowering, node: Node) => readonly Value[];

/** Rules by op name. */
export const RULES: Readonly<Record<string, Rule>> = {
  ...PRIMITIVE_RULES,
  ...FORWARD_RULES,
  ...GRADIENT_RULES,
};
