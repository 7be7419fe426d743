/**
 * silu: x σ(x).  swiglu: silu(gate) · up, the middle of the MLP.
 *
 * Kernel: forward/swiglu; silu alone occurs only in the aggregator.
 */
import type { Builder } from "../graph/builder.ts";
import { add, constant, mul, sigmoid, sub } from "../graph/primitives.ts";
import { formatType, type Value } from "../graph/types.ts";
import { modelOp } from "./define.ts";

export const siluOp = modelOp<Record<never, never>>({
  name: "silu",
  infer: ([x]) => [x!],
  decompose: (g, [x]) => [mul(g, x!, sigmoid(g, x!))],
  vjp: (g, { inputs: [x] }, upstream) => [mul(g, upstream, siluSlope(g, x!))],
  memory: "allowed",
});

export const swigluOp = modelOp<Record<never, never>>({
  name: "swiglu",
  infer([gate, up]) {
    if (gate!.shape.join() !== up!.shape.join()) {
      throw new TypeError(`Cannot gate ${formatType(up!)} by ${formatType(gate!)}`);
    }
    return [gate!];
  },
  decompose: (g, [gate, up]) => [mul(g, silu(g, gate!), up!)],
  vjp: (g, { inputs: [gate, up] }, upstream) => [
    mul(g, mul(g, upstream, up!), siluSlope(g, gate!)),
    mul(g, upstream, silu(g, gate!)),
  ],
  memory: "allowed",
});

/** d/dx x σ(x) = σ (1 + x (1 − σ)) */
function siluSlope(g: Builder, x: Value): Value {
  const s = sigmoid(g, x);
  const one = constant(g, 1);
  return mul(g, s, add(g, one, mul(g, x, sub(g, one, s))));
}

/** x [...] → [...] */
export function silu(g: Builder, x: Value): Value {
  return g.apply1(siluOp, [x], {});
}

/** gate [rows, F], up [rows, F] → [rows, F] */
export function swiglu(g: Builder, gate: Value, up: Value): Value {
  return g.apply1(swigluOp, [gate, up], {});
}
