// Sums, maxima and places of maxima along one axis, always in the same order.
//
// in   x [outer, n, inner]; op 0 sum, 1 maximum
// out  y [outer, ceil(n / chunk), inner] f32: a long axis is folded in pieces of `chunk`, whose
//      results are folded in turn; argmax: index [outer] i32, the lowest among equals, inner is 1
// reference: core/graph/primitives/products.ts; sums in float by pieces, so closer than one by one.
//
// In reduce_rows, where inner is 1, a block has a piece of a row; in reduce_columns a thread has a
// piece of a column, so that a warp reads neighbours.
#include "common/reduce.cuh"
#include "common/types.cuh"

constexpr int THREADS = 256, MANY = 512;

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

extern "C" __global__ void __launch_bounds__(MANY)
    argmax(int* __restrict__ index, const Element* __restrict__ x, int outer, int n) {
  const int row = blockIdx.x;
  if (row >= outer) return;
  __shared__ Best scratch[MANY / 32];
  const int step = packStep(n);
  Best best = {-INFINITE, n};
  for (int at = threadIdx.x * step; at < n; at += MANY * step) {
    const Pack a = load(x + (long long)row * n + at, step);
#pragma unroll
    for (int i = 0; i < WIDTH; i++) {
      if (i < step) best = better(best, {a.v[i], at + i});
    }
  }
  best = blockFold(best, scratch, better);
  // A row of NaN has no largest element.
  if (threadIdx.x == 0) index[row] = best.place < n ? best.place : 0;
}
