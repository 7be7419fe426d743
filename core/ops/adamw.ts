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
import { modelOp } from "./define.ts";

/** Constants of the method. */
export interface AdamWConstants {
  readonly beta1: number;
  readonly beta2: number;
  readonly epsilon: number;
}

/** Four tensors of one shape and four scalars → the new parameter, m and v. */
export const adamw = modelOp<{ beta1: number; beta2: number; epsilon: number }>()({
  name: "adamw",
  inputs: ["parameter", "m", "v", "gradient", "scale", "decay", "stepSize", "correction"],
  infer: ({ parameter, m, v }) => [parameter, m, v],
  decompose(
    { parameter, m, v, gradient, scale, decay, stepSize, correction },
    { beta1, beta2, epsilon },
  ) {
    // Scalars first: every pass over the tensors that can be saved is.
    const inner = scale.mul(1 - beta1);
    const square = scale.mul(scale).mul(1 - beta2);
    const newM = m.mul(beta1).add(gradient.mul(inner));
    const newV = v.mul(beta2).add(gradient.mul(gradient).mul(square));
    // a m / (√(c v) + ε) = (a / √c) m / (√v + ε / √c)
    const root = correction.sqrt();
    const below = newV.sqrt().add(root.graph.constant(epsilon).div(root));
    const step = newM.div(below).mul(stepSize.div(root));
    return [parameter.mul(decay).sub(step), newM, newV];
  },
});
