/** Elementwise primitives, in f32 or i32, and casts: all are one kernel. */
import * as p from "../../../graph/primitives.ts";
import type { Primitive } from "../../../graph/types.ts";
import { listRule, type Rule } from "./rule.ts";
import { isElementwise } from "./strided.ts";

/** The rule of an op whose operands are floats, or integers if the first is. */
function elementwise(op: Primitive): Rule {
  return listRule(op, (l, inputs, _, [y]) => {
    const { name } = op;
    const target = l.target(y);
    // Sums of equal shapes, such as gradients of a residual stream, stay in bf16.
    const isBf16 = name === "add" && l.dtype === "bf16" && !target &&
      inputs[0].shape.join() === inputs[1].shape.join() &&
      inputs.some((value) => l.get(value).dtype === "bf16");
    const type = inputs[0].dtype === "i32" ? " i32" : isBf16 ? " bf16" : "";
    const operands = inputs.map((value) => {
      if (value.dtype !== "f32") return l.get(value);
      return isBf16 ? l.operand(value) : l.f32(value);
    });
    const full = `${name}${type}`;
    if (!isElementwise(full)) throw new TypeError(`cannot compute ${full} on this device`);
    return [l.elementwise(full, operands, isBf16 ? operands[0]! : y, target)];
  });
}

export const ELEMENTWISE_RULES: readonly Rule[] = [
  ...[p.add, p.sub, p.mul, p.div, p.lessEqual, p.select].map(elementwise),
  ...[p.exp, p.log, p.sqrt, p.sin, p.cos, p.sigmoid].map(elementwise),
  listRule(p.cast, (l, [x], { dtype }, [y]) => {
    // Between floats nothing is to be done before a kernel wants one type or the other.
    if (x.dtype === "bf16" && dtype === "f32") return [l.get(x)];
    if (x.dtype === "f32" && dtype === "bf16") return [l.cast(l.get(x), "bf16")];
    const name = `${x.dtype} to ${dtype}`;
    if (!isElementwise(name)) throw new TypeError(`cannot cast ${name} on this device`);
    return [l.elementwise(name, [x.dtype === "f32" ? l.f32(x) : l.get(x)], y)];
  }),
  listRule(p.constant, (l, _, { data: list }, [{ dtype, shape }]) => {
    const data = dtype === "i32" ? Int32Array.from(list) : Float32Array.from(list);
    return [l.constant({ dtype, shape, data })];
  }),
  listRule(p.iota, (l, _, __, [y]) => [l.elementwise("iota", [], y)]),
];
