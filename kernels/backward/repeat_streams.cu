// Gradient of repeat_streams: the sum over streams, in their order.
//
// in   dy [P, count]
// out  dx [count]
// reference: broadcast in core/graph/derivatives.ts; added in float.
#include "common/types.cuh"

extern "C" __global__ void __launch_bounds__(256)
    sum_streams(Element* __restrict__ dx, const Element* __restrict__ dy, long long count, int P) {
  takeTurn();
  const long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= count) return;
  float sum = 0.0f;
  for (int p = 0; p < P; p++) sum += widen(dy[p * count + at]);
  dx[at] = narrow(sum);
}
