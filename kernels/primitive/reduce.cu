// Sums and maxima along one axis, always in the same order.
//
// in   x [rows, n] for rows, [outer, n, inner] for columns; op 0 sum, 1 maximum
// out  y [rows, ceil(n / chunk)]: a long row is folded in pieces, whose results are folded in turn;
//      y [outer, inner]
// reference: core/graph/primitives/products.ts; sums in float by pieces, so closer than one by one.
#include "common/reduce.cuh"
#include "common/types.cuh"

constexpr int THREADS = 256;

__device__ inline float fold(float sofar, float x, int op) {
  return op == 1 ? fmaxf(sofar, x) : sofar + x;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    reduce_rows(float* __restrict__ y, const float* __restrict__ x, int rows, long long n,
                int chunk, int op) {
  const int row = blockIdx.x, piece = blockIdx.y;
  if (row >= rows) return;
  __shared__ float scratch[THREADS / 32];
  const long long begin = (long long)piece * chunk, end = min(n, begin + chunk);
  float own = op == 1 ? -INFINITE : 0.0f;
  for (long long i = begin + threadIdx.x; i < end; i += THREADS) {
    own = fold(own, x[row * n + i], op);
  }
  const float all = op == 1 ? blockMax(own, scratch) : blockSum(own, scratch);
  if (threadIdx.x == 0) y[(long long)row * gridDim.y + piece] = all;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    reduce_columns(float* __restrict__ y, const float* __restrict__ x, int outer, int n, int inner,
                   int op) {
  const long long at = (long long)blockIdx.x * THREADS + threadIdx.x;  // outer, inner
  if (at >= (long long)outer * inner) return;
  const float* from = x + at / inner * n * inner + at % inner;
  float result = op == 1 ? -INFINITE : 0.0f;
  for (int i = 0; i < n; i++) result = fold(result, from[(long long)i * inner], op);
  y[at] = result;
}
