/**
 * silu: x σ(x).  swiglu: silu(gate) · up, the middle of the MLP.
 *
 * Kernel: forward/swiglu; silu alone, which only the aggregator has, is expanded.
 */
import { formatType } from "../graph/types.ts";
import type { Value } from "../graph/value.ts";
import { modelOp } from "./define.ts";

/** x [...] → [...] */
export const silu = modelOp()({
  name: "silu",
  inputs: ["x"],
  infer: ({ x }) => x,
  decompose: ({ x }) => x.mul(x.sigmoid()),
  vjp: ({ x }, _, dy) => ({ x: dy.mul(siluSlope(x)) }),
  memory: "allowed",
});

/** gate [rows, F], up [rows, F] → [rows, F] */
export const swiglu = modelOp()({
  name: "swiglu",
  inputs: ["gate", "up"],
  infer({ gate, up }) {
    if (gate.shape.join() !== up.shape.join()) {
      throw new TypeError(`cannot gate ${formatType(up)} by ${formatType(gate)}`);
    }
    return gate;
  },
  decompose: ({ gate, up }) => silu({ x: gate }).mul(up),
  vjp: ({ gate, up }, _, dy) => ({
    gate: dy.mul(up).mul(siluSlope(gate)),
    up: dy.mul(silu({ x: gate })),
  }),
  memory: "allowed",
});

/** d/dx x σ(x) = σ (1 + x (1 − σ)) */
function siluSlope(x: Value): Value {
  const s = x.sigmoid();
  const one = x.graph.constant(1);
  return s.mul(one.add(x.mul(one.sub(s))));
}
