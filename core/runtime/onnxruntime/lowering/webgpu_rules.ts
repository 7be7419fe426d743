/**
 * Lowering rules of the WebGPU provider that differ from those of the processor.
 *
 * With f16, matrices, their products and the KV cache are f16, and everything else stays f32: half the
 * memory for what is large, and no sum of squares that overflows.
 */
import type { Node } from "../../../graph/program.ts";
import type { Value } from "../../../graph/value.ts";
import type { Lowering, PrimitiveRules, Rule, RuleOf, Target } from "./lower.ts";
import { embeddingRule, linearRule, tokenLogprobsRule } from "./model_rules.ts";
import { CPU_TARGET } from "./rules.ts";

/** Element types of matrices. */
export type Elements = "f32" | "f16";

/** There is no product of transposed matrices, so they are transposed before. */
const matmul: RuleOf<"matmul"> = (l, [a, b], { transposeA, transposeB, scale }, output) => {
  const left = transposeA ? transposed(l, a) : l.get(a);
  const right = transposeB ? transposed(l, b) : l.get(b);
  // The left side is the smaller one where it matters: the queries of one token.
  const scaled = scale === 1 ? left : l.model.node("Mul", [left, l.number(scale)]);
  l.model.node("MatMul", [scaled, right], {}, { output });
};

function transposed(l: Lowering, x: Value): string {
  const axes = x.shape.map((_, axis) => axis);
  const perm = [...axes.slice(0, -2), axes.at(-1)!, axes.at(-2)!];
  return l.model.node("Transpose", [l.get(x)], { perm });
}

/**
 * Scatters by the slot of every written element. The rest of the buffer keeps its values where the output is
 * bound to its memory. Indices may be i32, as start positions are.
 */
const writeSlots: Rule = (l, [buffer, update, start], _, output) => {
  const { shape } = update;
  const offsets = l.size({ type: "i32", data: Array.from({ length: shape[2]! }, (_, t) => t) });
  const first = l.model.node("Unsqueeze", [l.get(start), l.longs(1)]);
  const slots = l.model.node("Unsqueeze", [l.model.node("Add", [first, offsets]), l.longs(1, 3)]);
  const each = l.model.node("Expand", [slots, l.size({ type: "i64", data: shape })]);
  const inputs = [l.get(buffer), each, l.get(update)];
  l.model.node("ScatterElements", inputs, { axis: 2 }, { output });
};

const PRIMITIVES = { matmul, write_slots: writeSlots } satisfies Partial<PrimitiveRules>;

/** Programs for the provider, with matrices of this type. */
export function webGpuTarget(elements: Elements): Target {
  const rules = {
    ...CPU_TARGET.rules,
    ...PRIMITIVES,
    linear: linearRule(elements),
    // The provider lacks bf16, so the table is cast when it is loaded.
    embedding: embeddingRule(() => ({ form: "matrix", type: elements })),
    token_logprobs: tokenLogprobsRule({ hasLogSumExp: false }),
  };
  // One buffer cannot be read and written in the same dispatch.
  return { rules, writesOverOperands: false };
}

/** Ops that are not left to a GPU; see `cpu_fallback.ts`. */
export function staysOnHost({ op }: Node): boolean {
  return op.name === "sin" || op.name === "cos";
}
