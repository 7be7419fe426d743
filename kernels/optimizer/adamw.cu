// adamw: one step of Adam with decoupled weight decay, in place.
//
//   ĝ = s g,  m ← β₁ m + (1 − β₁) ĝ,  v ← β₂ v + (1 − β₂) ĝ²
//   θ ← d θ − a m / (√(c v) + ε)
//
// in   gradient [count]; scale s, decay d, stepSize a, correction c [1] each
// out  parameter θ, m, v [count] where they lie
// reference: core/ops/adamw.ts, up to rounding: that one forms its scalars in other order.
// The scalars lie in device memory, so that a captured graph works at every learning rate. All
// tensors of a group lie end to end (core/train/optimizer.ts), so one launch updates many.

extern "C" __global__ void __launch_bounds__(256)
    adamw(float* __restrict__ parameter, float* __restrict__ m, float* __restrict__ v,
          const float* __restrict__ gradient, const float* __restrict__ scale,
          const float* __restrict__ decay, const float* __restrict__ stepSize,
          const float* __restrict__ correction, long long count, float beta1, float beta2,
          float epsilon) {
  const long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= count) return;
  const float g = gradient[at] * scale[0];
  const float first = beta1 * m[at] + (1.0f - beta1) * g;
  const float second = beta2 * v[at] + (1.0f - beta2) * g * g;
  m[at] = first;
  v[at] = second;
  parameter[at] = decay[0] * parameter[at] -
                  stepSize[0] * first / (sqrtf(correction[0] * second) + epsilon);
}
