/**
 * adamw: one step of Adam with decoupled weight decay (Loshchilov and Hutter 2019).
 *
 *   ĝ = s·g,  m ← β₁ m + (1 − β₁) ĝ,  v ← β₂ v + (1 − β₂) ĝ²
 *   θ ← d·θ − a · m / (√(c·v) + ε)
 *
 * What changes from step to step comes in as scalars: s, the factor that turns summed gradients into
 * clipped means; d = 1 − lr·λ; a = lr / (1 − β₁ᵗ); c = 1 / (1 − β₂ᵗ).
 *
 * Kernel: optimizer/adamw.
 */
import type { Builder } from "../graph/builder.ts";
import { add, constant, div, mul, sqrt, sub } from "../graph/primitives.ts";
import type { Value } from "../graph/types.ts";
import { modelOp } from "./define.ts";

/** Constants of the method. */
export interface AdamWConstants {
  readonly beta1: number;
  readonly beta2: number;
  readonly epsilon: number;
}

/** What one step reads: four tensors of one shape and four scalars. */
export interface AdamWInputs {
  readonly parameter: Value;
  readonly m: Value;
  readonly v: Value;
  readonly gradient: Value;
  readonly scale: Value;
  readonly decay: Value;
  readonly stepSize: Value;
  readonly correction: Value;
}

export const adamwOp = modelOp<{ beta1: number; beta2: number; epsilon: number }>({
  name: "adamw",
  infer: ([parameter, m, v]) => [parameter!, m!, v!],
  decompose(g, inputs, { beta1, beta2, epsilon }) {
    const [parameter, m, v, gradient, scale, decay, stepSize, correction] = inputs;
    // Scalars first: every pass over the tensors that can be saved is.
    const inner = mul(g, scale!, constant(g, 1 - beta1));
    const square = mul(g, mul(g, scale!, scale!), constant(g, 1 - beta2));
    const newM = add(g, mul(g, m!, constant(g, beta1)), mul(g, gradient!, inner));
    const squared = mul(g, mul(g, gradient!, gradient!), square);
    const newV = add(g, mul(g, v!, constant(g, beta2)), squared);
    // a m / (√(c v) + ε) = (a / √c) m / (√v + ε / √c)
    const root = sqrt(g, correction!);
    const below = add(g, sqrt(g, newV), div(g, constant(g, epsilon), root));
    const step = mul(g, div(g, newM, below), div(g, stepSize!, root));
    return [sub(g, mul(g, parameter!, decay!), step), newM, newV];
  },
});

/** The new parameter, m and v, of the shape of the old. */
export function adamw(
  g: Builder,
  inputs: AdamWInputs,
  constants: AdamWConstants,
): { parameter: Value; m: Value; v: Value } {
  const { parameter, m, v, gradient, scale, decay, stepSize, correction } = inputs;
  const list = [parameter, m, v, gradient, scale, decay, stepSize, correction];
  const [newParameter, newM, newV] = g.apply(adamwOp, list, { ...constants });
  return { parameter: newParameter!, m: newM!, v: newV! };
}
