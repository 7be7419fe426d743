// The norm of all gradients together, in two stages without atomics, so that it is the same each
// time.
//
// square_sums: in gradients, sizes [count]: pieces of tensors; out partial [count] f32 = Σ g²
// global_norm: in partial [count]; out norm [1] f32 = √Σ partial
// reference: the square root of sums of mul in core/graph/primitives.ts; 1e-6. Not yet run on a
// GPU.
#include "common/reduce.cuh"
#include "common/types.cuh"

constexpr int THREADS = 256;

extern "C" __global__ void __launch_bounds__(THREADS)
    square_sums(float* __restrict__ partial, const float* const* __restrict__ gradients,
                const long long* __restrict__ sizes, int count) {
  if (blockIdx.x >= count) return;
  __shared__ float scratch[THREADS / 32];
  const float* gradient = gradients[blockIdx.x];
  float sum = 0.0f;
  for (long long i = threadIdx.x; i < sizes[blockIdx.x]; i += THREADS) {
    sum += gradient[i] * gradient[i];
  }
  const float all = blockSum(sum, scratch);
  if (threadIdx.x == 0) partial[blockIdx.x] = all;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    global_norm(float* __restrict__ norm, const float* __restrict__ partial, int count) {
  if (blockIdx.x > 0) return;
  __shared__ float scratch[THREADS / 32];
  float sum = 0.0f;
  for (int i = threadIdx.x; i < count; i += THREADS) sum += partial[i];
  const float all = blockSum(sum, scratch);
  if (threadIdx.x == 0) norm[0] = sqrtf(all);
}
