// linear for few rows: y = x weightᵀ + bias, where reading the weights is all the work.
//
// in   x [M, K], weight [N, K], bias [N] or null
// out  y [M, N], float if WIDE else Element
// saved for backward: x, weight
// reference: core/ops/linear.ts; products are added in float, lane by lane, then over the warp,
// so the order depends on K alone. Not yet run on a GPU.
//
// A warp computes COLUMNS columns for ROWS rows at once: each weight is read once per ROWS rows
// and each x once per COLUMNS columns. ROWS is 1, 4 or 8; more rows come as more blocks, which
// find the weights in the second-level cache. Beyond 64 rows a library product is faster.
#include "common/reduce.cuh"
#include "common/types.cuh"

constexpr int WARPS = 4, COLUMNS = 4;

#if WIDE
typedef float Result;
__device__ inline Result result(float x) { return x; }
#else
typedef Element Result;
__device__ inline Result result(float x) { return narrow(x); }
#endif

// Three blocks per processor: said outright, since the compiler else spills to fit one more.
extern "C" __global__ void __launch_bounds__(32 * WARPS, 3)
    linear(Result* __restrict__ y, const Element* __restrict__ x,
           const Element* __restrict__ weight, const Element* __restrict__ bias, int M, int N,
           int K) {
  const int column = (blockIdx.x * WARPS + threadIdx.x / 32) * COLUMNS;
  const int row = blockIdx.y * ROWS, lane = threadIdx.x % 32;
  if (column >= N || row >= M) return;
  const int step = packStep(K);
  float sums[COLUMNS][ROWS] = {};
  for (int k = lane * step; k < K; k += 32 * step) {
    Pack w[COLUMNS];
    // Past the edge the last row or column is computed again and not stored.
#pragma unroll
    for (int j = 0; j < COLUMNS; j++) {
      w[j] = load(weight + (long long)min(column + j, N - 1) * K + k, step);
    }
#pragma unroll
    for (int m = 0; m < ROWS; m++) {
      const Pack a = load(x + (long long)min(row + m, M - 1) * K + k, step);
#pragma unroll
      for (int j = 0; j < COLUMNS; j++) {
#pragma unroll
        for (int i = 0; i < WIDTH; i++) sums[j][m] += a.v[i] * w[j].v[i];
      }
    }
  }
#pragma unroll
  for (int m = 0; m < ROWS; m++) {
#pragma unroll
    for (int j = 0; j < COLUMNS; j++) {
      const float sum = warpSum(sums[j][m]);
      if (lane != 0 || row + m >= M || column + j >= N) continue;
      const float offset = bias ? widen(bias[column + j]) : 0.0f;
      y[(long long)(row + m) * N + column + j] = result(sum + offset);
    }
  }
}
