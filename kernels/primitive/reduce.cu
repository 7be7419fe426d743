// Sums and maxima along one axis, always in the same order.
//
// in   x [outer, n, inner]; op 0 sum, 1 maximum
// out  y [outer, ceil(n / chunk), inner] f32: a long axis is folded in pieces of `chunk`, whose
//      results are folded in turn
// reference: core/graph/primitives/products.ts; sums in float by pieces, so closer than one by one.
//
// In reduce_rows, where inner is 1, a block has a piece of a row; in reduce_columns a thread has a
// piece of a column, so that a warp reads neighbours.
#include "common/reduce.cuh"
#include "common/types.cuh"

constexpr int THREADS = 256;

__device__ inline float fold(float sofar, float x, int op) {
  return op == 1 ? fmaxf(sofar, x) : sofar + x;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    reduce_rows(float* __restrict__ y, const Element* __restrict__ x, int outer, long long n,
                int chunk, int op) {
  const int row = blockIdx.x, piece = blockIdx.y;
  if (row >= outer) return;
  __shared__ float scratch[THREADS / 32];
  const long long begin = (long long)piece * chunk, end = min(n, begin + chunk);
  float own = op == 1 ? -INFINITE : 0.0f;
  for (long long i = begin + threadIdx.x; i < end; i += THREADS) {
    own = fold(own, toFloat(x[row * n + i]), op);
  }
  const float all = op == 1 ? blockMax(own, scratch) : blockSum(own, scratch);
  if (threadIdx.x == 0) y[(long long)row * gridDim.y + piece] = all;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    reduce_columns(float* __restrict__ y, const Element* __restrict__ x, int outer, int n,
                   int inner, int chunk, int op) {
  const long long at = (long long)blockIdx.x * THREADS + threadIdx.x;  // outer, inner
  if (at >= (long long)outer * inner) return;
  const long long o = at / inner, i = at % inner;
  const int begin = blockIdx.y * chunk, end = min(n, begin + chunk);
  float result = op == 1 ? -INFINITE : 0.0f;
  for (int j = begin; j < end; j++) result = fold(result, toFloat(x[(o * n + j) * inner + i]), op);
  y[(o * gridDim.y + blockIdx.y) * inner + i] = result;
}
