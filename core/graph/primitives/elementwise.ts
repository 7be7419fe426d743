/** Elementwise primitives, which broadcast as NumPy does, and constants. */
import type { Builder } from "../builder.ts";
import { type DType, formatType, type Shape, type Value } from "../types.ts";
import { broadcastShapes, primitive } from "./define.ts";

type Unary = (g: Builder, x: Value) => Value;
type Binary = (g: Builder, a: Value, b: Value) => Value;

function unary(name: string): Unary {
  const op = primitive({ name, infer: ([x]) => [x!], memory: "allowed" });
  return (g, x) => g.apply1(op, [x], {});
}

function binary(name: string, result?: DType): Binary {
  const op = primitive({
    name,
    infer([a, b]) {
      if (a!.dtype !== b!.dtype) {
        throw new TypeError(`Cannot ${name} ${formatType(a!)} and ${formatType(b!)}`);
      }
      return [{ dtype: result ?? a!.dtype, shape: broadcastShapes(a!.shape, b!.shape) }];
    },
    memory: result ? undefined : "allowed",
  });
  return (g, a, b) => g.apply1(op, [a, b], {});
}

export const add: Binary = binary("add");
export const sub: Binary = binary("sub");
export const mul: Binary = binary("mul");
export const div: Binary = binary("div");
export const lessEqual: Binary = binary("less_equal", "bool");
export const exp: Unary = unary("exp");
export const log: Unary = unary("log");
export const sqrt: Unary = unary("sqrt");
export const sin: Unary = unary("sin");
export const cos: Unary = unary("cos");
export const sigmoid: Unary = unary("sigmoid");

const selectOp = primitive({
  name: "select",
  infer([condition, a, b]) {
    const shape = broadcastShapes(broadcastShapes(condition!.shape, a!.shape), b!.shape);
    return [{ dtype: a!.dtype, shape }];
  },
});

/** `condition ? a : b`, elementwise. */
export function select(g: Builder, condition: Value, a: Value, b: Value): Value {
  return g.apply1(selectOp, [condition, a, b], {});
}

const castOp = primitive<{ dtype: DType }>({
  name: "cast",
  infer: ([x], { dtype }) => [{ dtype, shape: x!.shape }],
});

/** The same numbers in another element type. */
export function cast(g: Builder, x: Value, dtype: DType): Value {
  return x.dtype === dtype ? x : g.apply1(castOp, [x], { dtype });
}

const constantOp = primitive<{ dtype: DType; shape: Shape; data: readonly number[] }>({
  name: "constant",
  infer: (_, { dtype, shape }) => [{ dtype, shape }],
});

/** A small tensor known when the program is written. A number makes a scalar. */
export function constant(
  g: Builder,
  data: number | readonly number[],
  dtype: DType = "f32",
): Value {
  const list = typeof data === "number" ? [data] : data;
  const shape = typeof data === "number" ? [] : [data.length];
  return g.apply1(constantOp, [], { dtype, shape, data: list });
}

const iotaOp = primitive<{ length: number }>({
  name: "iota",
  infer: (_, { length }) => [{ dtype: "i32", shape: [length] }],
});

/** `[0, 1, …, length − 1]` as i32. */
export function iota(g: Builder, length: number): Value {
  return g.apply1(iotaOp, [], { length });
}
