/** ONNX operators of each primitive: almost one each. */
import type { Shape } from "../../../graph/types.ts";
import { ONNX_TYPE } from "../element_types.ts";
import type { PrimitiveRules, Rule, RuleOf, Target } from "./lower.ts";
import { CONTRIB } from "./model.ts";
import { MODEL_RULES } from "./model_rules.ts";

/** An operator with the same operands and no attributes. */
function same(type: string): Rule {
  return (l, inputs, _, output) => l.model.node(type, l.operands(inputs), {}, { output });
}

const matmul: RuleOf<"matmul"> = (l, inputs, { transposeA, transposeB, scale }, output) => {
  const operands = l.operands(inputs);
  if (!transposeA && !transposeB && scale === 1) l.model.node("MatMul", operands, {}, { output });
  else {
    const attributes = {
      transA: Number(transposeA),
      transB: Number(transposeB),
      alpha: { float: scale },
    };
    l.model.node("FusedMatMul", operands, attributes, { output, domain: CONTRIB });
  }
};

const cast: RuleOf<"cast"> = (l, [x], { dtype }, output) => {
  l.model.node("Cast", [l.get(x)], { to: ONNX_TYPE[dtype] }, { output });
};

const constant: RuleOf<"constant"> = (l, _, { dtype, shape, data }, output) => {
  const values = dtype === "f32" ? Float32Array.from(data) : Int32Array.from(data);
  l.model.constant(output, dtype, shape, values);
};

const iota: RuleOf<"iota"> = (l, _, { length }, output) => {
  const data = Array.from({ length }, (_, i) => i);
  l.model.node("Identity", [l.size({ type: "i32", data })], {}, { output });
};

function reduction(type: string): Rule<{ axis: number }> {
  return (l, [x], { axis }, output) => {
    const axes = l.longs(axis);
    l.model.node(type, [l.get(x), axes], { keepdims: 1 }, { output });
  };
}

const argmax: RuleOf<"argmax"> = (l, [x], { axis }, output) => {
  const index = l.model.node("ArgMax", [l.get(x)], { axis, keepdims: 1 });
  l.model.node("Cast", [index], { to: 6 }, { output });
};

function toShape(type: string): Rule<{ shape: Shape }> {
  return (l, [x], { shape }, output) => {
    const size = l.size({ type: "i64", data: shape });
    l.model.node(type, [l.get(x), size], {}, { output });
  };
}

const transpose: RuleOf<"transpose"> = (l, [x], { order }, output) => {
  l.model.node("Transpose", [l.get(x)], { perm: order }, { output });
};

const slice: RuleOf<"slice"> = (l, [x], { axis, start, end }, output) => {
  const bound = (position: number) => l.size({ type: "i64", data: [position] });
  const bounds = [bound(start), bound(end), l.longs(axis)];
  l.model.node("Slice", [l.get(x), ...bounds], {}, { output });
};

function alongAxis(type: string): Rule<{ axis: number }> {
  return (l, inputs, { axis }, output) => {
    l.model.node(type, l.operands(inputs), { axis }, { output });
  };
}

const takeLast: Rule = (l, inputs, _, output) => {
  const [x, indices] = l.operands(inputs);
  const column = l.model.node("Unsqueeze", [indices, l.longs(-1)]);
  const picked = l.model.node("GatherElements", [x, column], { axis: -1 });
  l.model.node("Squeeze", [picked, l.longs(-1)], {}, { output });
};

/**
 * ScatterElements, whose sums are exact; ScatterND loses additions to the same index when it runs on
 * several threads. It wants one index per element, so the indices are spread over the entries.
 */
const scatterAdd: RuleOf<"scatter_add"> = (l, inputs, { axis }, output) => {
  const [x, indices, update] = l.operands(inputs);
  const [{ shape }] = inputs;
  const around = shape.map((_, i) => i).filter((i) => i !== axis);
  // Several axes of indices count as one, which the entries then have in their place.
  const flat = l.model.node("Reshape", [indices, l.longs(-1)]);
  const spread = l.model.node("Unsqueeze", [flat, l.longs(...around)]);
  const entries = shape.map((size, i) => i === axis ? -1 : size);
  const entryShape = l.size({ type: "i64", data: entries });
  const list = l.model.node("Reshape", [update, entryShape]);
  const each = l.model.node("Expand", [spread, l.model.node("Shape", [list])]);
  l.model.node("ScatterElements", [x, each, list], { axis, reduction: "add" }, { output });
};

const addLast: Rule = (l, inputs, _, output) => {
  const [x, indices, update] = l.operands(inputs);
  const column = l.model.node("Unsqueeze", [indices, l.longs(-1)]);
  const values = l.model.node("Unsqueeze", [update, l.longs(-1)]);
  l.model.node("ScatterElements", [x, column, values], { axis: -1, reduction: "add" }, { output });
};

/** The output is bound to the buffer's memory; `Lowering` checks that the buffer is not read late. */
const assign: Rule = (l, [, value], _, output) => {
  l.model.node("Identity", [l.get(value)], {}, { output });
};

/** Copies nothing when the output is bound to the memory of the buffer. */
const writeSlots: Rule = (l, inputs, _, output) => {
  const [buffer, update, start] = l.operands(inputs);
  l.model.node("TensorScatter", [buffer, update, l.as("i64", start)], { axis: 2 }, { output });
};

/** The compiler checks that no primitive is missing. */
const PRIMITIVES: PrimitiveRules = {
  add: same("Add"),
  sub: same("Sub"),
  mul: same("Mul"),
  div: same("Div"),
  less_equal: same("LessOrEqual"),
  select: same("Where"),
  exp: same("Exp"),
  log: same("Log"),
  sqrt: same("Sqrt"),
  sin: same("Sin"),
  cos: same("Cos"),
  sigmoid: same("Sigmoid"),
  cast,
  constant,
  iota,
  sum: reduction("ReduceSum"),
  max: reduction("ReduceMax"),
  argmax,
  matmul,
  reshape: toShape("Reshape"),
  broadcast: toShape("Expand"),
  recompute: same("Identity"),
  transpose,
  slice,
  concat: alongAxis("Concat"),
  gather: alongAxis("Gather"),
  take_last: takeLast,
  scatter_add: scatterAdd,
  add_last: addLast,
  assign,
  write_slots: writeSlots,
};

/** The processor. */
export const CPU_TARGET: Target = {
  rules: { ...MODEL_RULES, ...PRIMITIVES },
  writesOverOperands: true,
};
