/**
 * Lowers programs to launches: ops without a rule are expanded, the rest is fused, each op has its rule.
 *
 * Every op that a fusion introduces has a decomposition, so the fused program still runs on the reference
 * device, and a test shows for each fusion that it computes the same.
 */
import type { Program } from "../../graph/program.ts";
import { prepare } from "../../graph/rewrite.ts";
import { rotateWhileWriting } from "./fuse/cache_writes.ts";
import { groupLinears } from "./fuse/linears.ts";
import { addBeforeNorm } from "./fuse/residuals.ts";
import { RULES } from "./kernels/mod.ts";
import { type Lowered, Lowering } from "./lowering.ts";
import type { ComputeType } from "./memory.ts";

/** Fuses a prepared program. */
export function fuse(program: Program, dtype: ComputeType): Program {
  return rotateWhileWriting(groupLinears(addBeforeNorm(program)), dtype);
}

/** A program of ops that have rules: expanded and fused. */
export function fusedFor(program: Program, dtype: ComputeType): Program {
  return fuse(prepare(program, (op) => RULES.has(op)), dtype);
}

/** Lowers a program. `isFixed` tells whether a parameter is a constant weight. */
export function lower(
  program: Program,
  dtype: ComputeType,
  isFixed: (name: string) => boolean,
): Lowered {
  const source = fusedFor(program, dtype);
  const lowering = new Lowering(source, dtype, isFixed);
  for (const node of source.nodes) {
    const rule = RULES.get(node.op);
    if (!rule) throw new TypeError(`no rule to lower "${node.op.name}"`);
    const results = rule.lower(lowering, node);
    node.outputs.forEach((value, i) => results[i] && lowering.set(value, results[i]));
  }
  return lowering.finish();
}
