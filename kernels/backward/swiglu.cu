// Gradients of silu and swiglu, with σ = σ(gate) and slope = σ (1 + gate (1 − σ)):
//
//   dgate = dy up slope,  dup = dy gate σ
//
// in   dy, x, gate, up [count]
// out  dx; dgate (may be gate), dup (may be up) [count]
// reference: the rules in core/ops/activation.ts; float inside.
#include "common/types.cuh"

__device__ inline int left(long long count, long long at) {
  return count - at < WIDTH ? (int)(count - at) : WIDTH;
}

__device__ inline float slope(float x, float s) { return s * (1.0f + x * (1.0f - s)); }

extern "C" __global__ void __launch_bounds__(256)
    silu_backward(Element* dx, const Element* dy, const Element* x, long long count) {
  const long long at = ((long long)blockIdx.x * blockDim.x + threadIdx.x) * WIDTH;
  if (at >= count) return;
  const int n = left(count, at);
  Pack g = load(dy + at, n);
  const Pack a = load(x + at, n);
#pragma unroll
  for (int i = 0; i < WIDTH; i++) g.v[i] *= slope(a.v[i], sigmoid(a.v[i]));
  store(dx + at, g, n);
}

extern "C" __global__ void __launch_bounds__(256)
    swiglu_backward(Element* dgate, Element* dup, const Element* dy, const Element* gate,
                    const Element* up, long long count) {
  const long long at = ((long long)blockIdx.x * blockDim.x + threadIdx.x) * WIDTH;
  if (at >= count) return;
  const int n = left(count, at);
  const Pack g = load(dy + at, n);
  Pack a = load(gate + at, n), b = load(up + at, n);
#pragma unroll
  for (int i = 0; i < WIDTH; i++) {
    const float s = sigmoid(a.v[i]), x = a.v[i];
    a.v[i] = g.v[i] * b.v[i] * slope(x, s);
    b.v[i] = g.v[i] * x * s;
  }
  store(dgate + at, a, n);
  store(dup + at, b, n);
}
