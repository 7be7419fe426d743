/**
 * Lowers programs to launches: ops without a rule are expanded, each other op has its rule. A rule may take
 * neighbours of its node into the same launch, where that saves more than 3 % of a decoding step.
 *
 * Silu and stream_weights have none, since a step has one of each. Of a 3B model's decoding (1.8 ms, 379 launches)
 * that is ten launches of 2 µs more, 1 % of a step.
 */
import { UsageError } from "../../base/errors.ts";
import type { Op, Program } from "../../graph/program.ts";
import { prepare } from "../../graph/rewrite.ts";
import { gatedDelta, packedGatedDelta } from "../../ops/gated_delta.ts";
import { rotateWhileWriting } from "./cache_writes.ts";
import { RULES } from "./kernels/mod.ts";
import { type Lowered, Lowering } from "./lowering.ts";
import type { ComputeType } from "./memory.ts";

/**
 * A program of ops that have rules: expanded and fused.
 * @throws {UsageError} for a delta net in bf16: its decays and states would be rounded at every token
 */
export function fusedFor(program: Program, dtype: ComputeType): Program {
  const hasStates = program.nodes.some(({ op }) => STATE_OPS.has(op));
  if (hasStates && dtype === "bf16") {
    throw new UsageError("`--device cuda` computes a model with delta nets in f32 alone", {
      hints: ["pass --dtype f32"],
    });
  }
  return rotateWhileWriting(prepare(program, (op) => RULES.has(op)), dtype);
}

const STATE_OPS: ReadonlySet<Op> = new Set([gatedDelta.op, packedGatedDelta.op]);

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
