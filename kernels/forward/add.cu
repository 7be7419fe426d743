// add: the sum of two tensors of one shape, such as a residual stream and what joins it.
//
// in   a, b [count]
// out  y [count]; it may be a or b, since each thread reads before it writes
// saved for backward: nothing
// reference: add of core/graph/primitives.ts; float inside.
#include "common/types.cuh"

extern "C" __global__ void __launch_bounds__(256)
    add(Element* y, const Element* a, const Element* b, long long count) {
  const long long at = ((long long)blockIdx.x * blockDim.x + threadIdx.x) * WIDTH;
  if (at >= count) return;
  const int n = count - at < WIDTH ? (int)(count - at) : WIDTH;
  Pack sum = load(a + at, n);
  const Pack other = load(b + at, n);
#pragma unroll
  for (int i = 0; i < WIDTH; i++) sum.v[i] += other.v[i];
  store(y + at, sum, n);
}
