// The same numbers in another element type, and whole numbers in a row.
//
// in   x [count]
// out  y [count]; iota: 0, 1, …
// reference: cast and iota of core/graph/primitives/elementwise.ts; Element is what BF16 says,
// rounded to nearest even.
#include "common/types.cuh"

__device__ inline long long own() { return (long long)blockIdx.x * blockDim.x + threadIdx.x; }

extern "C" __global__ void __launch_bounds__(256)
    f32_to_bf16(Element* __restrict__ y, const float* __restrict__ x, long long count) {
  const long long at = own();
  if (at >= count) return;
  y[at] = fromFloat(x[at]);
}

extern "C" __global__ void __launch_bounds__(256)
    bf16_to_f32(float* __restrict__ y, const Element* __restrict__ x, long long count) {
  const long long at = own();
  if (at >= count) return;
  y[at] = toFloat(x[at]);
}

extern "C" __global__ void __launch_bounds__(256)
    cast_integers(float* __restrict__ y, const int* __restrict__ x, long long count) {
  const long long at = own();
  if (at >= count) return;
  y[at] = (float)x[at];
}

extern "C" __global__ void __launch_bounds__(256)
    cast_bools(float* __restrict__ y, const unsigned char* __restrict__ x, long long count) {
  const long long at = own();
  if (at >= count) return;
  y[at] = x[at] ? 1.0f : 0.0f;
}

extern "C" __global__ void __launch_bounds__(256)
    truncate_floats(int* __restrict__ y, const float* __restrict__ x, long long count) {
  const long long at = own();
  if (at >= count) return;
  y[at] = (int)x[at];
}

extern "C" __global__ void __launch_bounds__(256) iota(int* __restrict__ y, long long count) {
  const long long at = own();
  if (at >= count) return;
  y[at] = (int)at;
}
