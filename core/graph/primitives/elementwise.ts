/** Elementwise primitives, which broadcast as NumPy does, and constants. */
import { type DType, formatType, type Shape } from "../types.ts";
import { broadcastShapes, type Named, type One, type Three, type Two } from "./shapes.ts";

function unary<N extends string>(name: N): Named<N> {
  return { name, infer: ([x]: One) => [x], memory: "allowed" };
}

function binary<N extends string>(name: N, result?: DType): Named<N> {
  return {
    name,
    infer([a, b]: Two) {
      if (a.dtype !== b.dtype) {
        throw new TypeError(`cannot ${name} ${formatType(a)} and ${formatType(b)}`);
      }
      return [{ dtype: result ?? a.dtype, shape: broadcastShapes(a.shape, b.shape) }];
    },
    memory: result ? undefined : "allowed",
  };
}

const select: Named<"select"> = {
  name: "select",
  infer([condition, a, b]: Three) {
    const shape = broadcastShapes(broadcastShapes(condition.shape, a.shape), b.shape);
    return [{ dtype: a.dtype, shape }];
  },
};

const cast: Named<"cast", { dtype: DType }> = {
  name: "cast",
  infer: ([x]: One, { dtype }) => [{ dtype, shape: x.shape }],
};

const constant: Named<"constant", { dtype: DType; shape: Shape; data: readonly number[] }> = {
  name: "constant",
  infer: (_, { dtype, shape }) => [{ dtype, shape }],
};

const iota: Named<"iota", { length: number }> = {
  name: "iota",
  infer: (_, { length }) => [{ dtype: "i32", shape: [length] }],
};

export const ELEMENTWISE = {
  add: binary("add"),
  sub: binary("sub"),
  mul: binary("mul"),
  div: binary("div"),
  lessEqual: binary("less_equal", "bool"),
  exp: unary("exp"),
  log: unary("log"),
  sqrt: unary("sqrt"),
  sin: unary("sin"),
  cos: unary("cos"),
  sigmoid: unary("sigmoid"),
  select,
  cast,
  constant,
  iota,
} as const;
