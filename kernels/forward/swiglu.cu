// swiglu: silu(gate) · up with silu(x) = x σ(x).
//
// in   gate, up [count]
// out  y [count]; it may be gate, since each thread reads before it writes
// saved for backward: the inputs
// reference: core/ops/activation.ts; float inside.
#include "common/types.cuh"

extern "C" __global__ void __launch_bounds__(256)
    swiglu(Element* y, const Element* gate, const Element* up, long long count) {
  const long long at = ((long long)blockIdx.x * blockDim.x + threadIdx.x) * WIDTH;
  if (at >= count) return;
  const int n = (int)min((long long)WIDTH, count - at);
  Pack a = load(gate + at, n);
  const Pack b = load(up + at, n);
#pragma unroll
  for (int i = 0; i < WIDTH; i++) a.v[i] *= sigmoid(a.v[i]) * b.v[i];
  store(y + at, a, n);
}
