// Gradients of swiglu, with σ = σ(gate) and slope = σ (1 + gate (1 − σ)):
//
//   dgate = dy up slope,  dup = dy gate σ
//
// in   dy, gate, up [count]
// out  dgate, dup [count]
// reference: the rule in core/ops/activation.ts; float inside.
#include "common/types.cuh"

extern "C" __global__ void __launch_bounds__(256)
    swiglu_backward(Element* dgate, Element* dup, const Element* dy, const Element* gate,
                    const Element* up, long long count) {
  const long long at = ((long long)blockIdx.x * blockDim.x + threadIdx.x) * WIDTH;
  if (at >= count) return;
  const int n = (int)min((long long)WIDTH, count - at);
  const Pack g = load(dy + at, n);
  Pack a = load(gate + at, n), b = load(up + at, n);
#pragma unroll
  for (int i = 0; i < WIDTH; i++) {
    const float x = a.v[i], s = sigmoid(x);
    a.v[i] = g.v[i] * b.v[i] * s * (1.0f + x * (1.0f - s));
    b.v[i] = g.v[i] * x * s;
  }
  store(dgate + at, a, n);
  store(dup + at, b, n);
}
