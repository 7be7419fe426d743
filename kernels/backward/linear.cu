// Gradient of the bias of linear, dbias = Σ over rows of dy; those of x and weight are products.
//
// bias_partials: in dy [rows, N]; out partial [ceil(rows / CHUNK), N] f32
// sum_partials:  in partial [chunks, N]; out sum [N] f32
// reference: the rule in core/ops/linear.ts; rows are added in order.
#include "common/types.cuh"

constexpr int CHUNK = 64;

extern "C" __global__ void __launch_bounds__(128)
    bias_partials(float* __restrict__ partial, const Element* __restrict__ dy, int rows, int N) {
  const int n = blockIdx.x * blockDim.x + threadIdx.x;
  if (n >= N) return;
  const int begin = blockIdx.y * CHUNK, end = min(rows, begin + CHUNK);
  float sum = 0.0f;
  for (int row = begin; row < end; row++) sum += toFloat(dy[(long long)row * N + n]);
  partial[(long long)blockIdx.y * N + n] = sum;
}

extern "C" __global__ void __launch_bounds__(128)
    sum_partials(float* __restrict__ sum, const float* __restrict__ partial, int chunks, int N) {
  const int n = blockIdx.x * blockDim.x + threadIdx.x;
  if (n >= N) return;
  float total = 0.0f;
  for (int chunk = 0; chunk < chunks; chunk++) total += partial[(long long)chunk * N + n];
  sum[n] = total;
}
