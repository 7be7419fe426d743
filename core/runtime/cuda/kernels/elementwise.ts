/** Elementwise primitives, in f32 or i32, and casts. */
import addText from "../../../../kernels/forward/add.cu" with { type: "text" };
import text from "../../../../kernels/primitive/elementwise.cu" with { type: "text" };
import * as p from "../../../graph/primitives.ts";
import { broadcastStrides } from "../../../graph/strides.ts";
import { elementCount, type Primitive, type Shape } from "../../../graph/types.ts";
import type { Value } from "../../../graph/value.ts";
import { type BinaryName, computeInto } from "../fuse/in_place.ts";
import { collapse } from "../strides.ts";
import { each, type Kernel, kernel, kernelFile, perPack, type Sizes } from "./define.ts";
import { castBools, castIntegers, iota as iotaKernel, truncateFloats } from "./copies.ts";
import { listRule, type Rule, rule } from "./rule.ts";

export const ADD = kernelFile("forward/add.cu", addText);
export const ELEMENTWISE = kernelFile("primitive/elementwise.cu", text, [{ BF16: 0 }]);

const all = ({ count }: Record<string, number>) => each(count!);
const operands = "n1 n2 n3 a0 a1 a2 a3 b0 b1 b2 b3";

const addPacked = kernel(
  ADD,
  "add *y *a *b count:i64",
  (sizes) => each(sizes.count!, perPack(sizes)),
);
const unaryKernel = kernel(ELEMENTWISE, "unary *y *x count:i64 op", all);
const binaryFloats = kernel(ELEMENTWISE, `binary *y *a *b count:i64 op ${operands}`, all);
const binaryIntegers = kernel(
  ELEMENTWISE,
  `binary_integers *y *a *b count:i64 op ${operands}`,
  all,
);
const lessEqualFloats = kernel(ELEMENTWISE, `less_equal *y *a *b count:i64 ${operands}`, all);
const lessEqualIntegers = kernel(
  ELEMENTWISE,
  `less_equal_integers *y *a *b count:i64 ${operands}`,
  all,
);
const selectFloats = kernel(
  ELEMENTWISE,
  "select_floats *y *condition *a *b count:i64 n1 n2 n3 c0 c1 c2 c3 a0 a1 a2 a3 b0 b1 b2 b3",
  all,
);

/** Numbers by which `unary` knows what to compute. */
const UNARY = { exp: 0, log: 1, sqrt: 2, sin: 3, cos: 4, sigmoid: 5 } as const;

/** Numbers by which `binary` knows what to compute. */
const BINARY: Readonly<Record<BinaryName, number>> = { add: 0, sub: 1, mul: 2, div: 3 };

/** Sizes and strides of an elementwise kernel, by the names of its arguments. */
function walk(shape: Shape, inputs: Readonly<Record<string, Value>>): Sizes {
  const lists = Object.values(inputs).map((value) => broadcastStrides(value.shape, shape));
  const { sizes: [, n1, n2, n3], strides } = collapse(shape, lists);
  const scalars: Record<string, number> = { count: elementCount(shape), n1: n1!, n2: n2!, n3: n3! };
  Object.keys(inputs).forEach((letter, i) => {
    strides[i]!.forEach((stride, axis) => scalars[`${letter}${axis}`] = stride);
  });
  return scalars;
}

function unary(op: Primitive & { readonly name: keyof typeof UNARY }): Rule {
  return listRule(op, (l, [input]) => {
    const x = l.f32(input);
    const scalars = { count: elementCount(x.shape), op: UNARY[op.name] };
    return l.launch(unaryKernel, { reads: { x }, writes: { y: x }, scalars, reuse: "x" });
  });
}

function binary(op: Primitive & { readonly name: BinaryName }): Rule {
  return listRule(op, (l, [first, second], _, [y]) => {
    const areFloats = y.dtype !== "i32";
    if (op === p.add && areFloats && first.shape.join() === second.shape.join()) {
      // Sums of equal shapes, such as residual streams, are read 16 bytes at a time.
      const isBf16 = [first, second].some((value) => l.get(value).dtype === "bf16");
      const [a, b] = [first, second].map((value) => isBf16 ? l.operand(value) : l.f32(value));
      return l.launch(addPacked, {
        reads: { a, b },
        writes: { y: a! },
        scalars: { count: elementCount(y.shape) },
        defines: { BF16: Number(isBf16) },
        reuse: "a",
      });
    }
    const a = areFloats ? l.f32(first) : l.get(first);
    const b = areFloats ? l.f32(second) : l.get(second);
    return l.launch(areFloats ? binaryFloats : binaryIntegers, {
      reads: { a, b },
      writes: { y },
      scalars: { ...walk(y.shape, { a, b }), op: BINARY[op.name] },
      // In place only where a is walked as the result is.
      ...(a.shape.join() === y.shape.join() ? { reuse: "a" } : {}),
    });
  });
}

export const EXP: Rule = unary(p.exp);
export const LOG: Rule = unary(p.log);
export const SQRT: Rule = unary(p.sqrt);
export const SIN: Rule = unary(p.sin);
export const COS: Rule = unary(p.cos);
export const SIGMOID: Rule = unary(p.sigmoid);

export const ADD_RULE: Rule = binary(p.add);
export const SUB: Rule = binary(p.sub);
export const MUL: Rule = binary(p.mul);
export const DIV: Rule = binary(p.div);

export const COMPUTE_INTO: Rule = rule(computeInto, (l, inputs, { op }) => {
  const state = l.get(inputs.state), a = l.f32(inputs.a), b = l.f32(inputs.b);
  return l.launch(binaryFloats, {
    updates: { y: state },
    reads: { a, b },
    scalars: { ...walk(state.shape, { a, b }), op: BINARY[op] },
  });
});

export const LESS_EQUAL: Rule = listRule(p.lessEqual, (l, [first, second], _, [y]) => {
  const areFloats = first.dtype !== "i32";
  const a = areFloats ? l.f32(first) : l.get(first);
  const b = areFloats ? l.f32(second) : l.get(second);
  return l.launch(areFloats ? lessEqualFloats : lessEqualIntegers, {
    reads: { a, b },
    writes: { y },
    scalars: walk(y.shape, { a, b }),
  });
});

export const SELECT: Rule = listRule(p.select, (l, [first, second, third], _, [y]) => {
  const condition = l.get(first), a = l.f32(second), b = l.f32(third);
  return l.launch(selectFloats, {
    reads: { condition, a, b },
    writes: { y },
    scalars: walk(y.shape, { c: condition, a, b }),
  });
});

const CASTS: Readonly<Record<string, Kernel>> = {
  "i32 f32": castIntegers,
  "bool f32": castBools,
  "f32 i32": truncateFloats,
};

export const CAST_RULE: Rule = listRule(p.cast, (l, [x], { dtype }, [y]) => {
  // Between floats nothing is to be done before a kernel wants one type or the other.
  if (x.dtype === "bf16" && dtype === "f32") return [l.get(x)];
  if (x.dtype === "f32" && dtype === "bf16") return [l.cast(l.get(x), "bf16")];
  const found = CASTS[`${x.dtype} ${dtype}`];
  if (!found) throw new TypeError(`cannot cast ${x.dtype} to ${dtype} on this device`);
  const source = x.dtype === "f32" ? l.f32(x) : l.get(x);
  const scalars = { count: elementCount(y.shape) };
  return l.launch(found, { reads: { x: source }, writes: { y }, scalars });
});

export const CONSTANT: Rule = listRule(p.constant, (l, _, { data: list }, [{ dtype, shape }]) => {
  const data = dtype === "i32" ? Int32Array.from(list) : Float32Array.from(list);
  return [l.constant({ dtype, shape, data })];
});

export const IOTA: Rule = listRule(
  p.iota,
  (l, _, { length }, [y]) => l.launch(iotaKernel, { writes: { y }, scalars: { count: length } }),
);
