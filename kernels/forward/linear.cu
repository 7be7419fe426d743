// linear for few rows: y = x weightᵀ + bias, where reading the weights is all the work.
//
// in   x [M, K]; up to three weights [N0, K], [N1, K], [N2, K], each with a bias or null: what
//      reads the same x, such as queries, keys and values, is one launch
// out  linear: y0 [M, N0], y1, y2, float if WIDE else Element; linear_swiglu: y [M, N] =
//      silu(x gateᵀ) · (x upᵀ), both weights [N, K]
// saved for backward: x, weights
// reference: core/ops/linear.ts, core/ops/activation.ts; products are added in float, lane by lane,
// then over the warp, so the order depends on K alone.
//
// A warp computes COLUMNS columns for ROWS rows at once: each weight is read once per ROWS rows
// and each x once per COLUMNS columns. ROWS is 1, 4 or 8; more rows come as more blocks, which
// find the weights in the second-level cache. In bf16, more than one row is forward/linear_mma.cu's
// where K fits it; beyond 64 rows a library product is faster.
#include "common/linear.cuh"
#include "common/reduce.cuh"
#include "common/turn.cuh"

constexpr int WARPS = 4, COLUMNS = 4, SPAN = WARPS * COLUMNS;

// Sums over this lane's part of K; rowOf(j) is the weight row of column j. Past the edge the last
// row of x is computed again and not stored.
template <class RowOf>
__device__ inline void multiply(float (&sums)[COLUMNS][ROWS], const Element* x, RowOf rowOf,
                                int row, int M, int K) {
  const int lane = threadIdx.x % 32, step = packStep(K);
  for (int k = lane * step; k < K; k += 32 * step) {
    Pack w[COLUMNS];
#pragma unroll
    for (int j = 0; j < COLUMNS; j++) w[j] = load(rowOf(j) + k, step);
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
}

// Three blocks per processor: said outright, since the compiler else spills to fit one more.
extern "C" __global__ void __launch_bounds__(32 * WARPS, 3)
    linear(Result* __restrict__ y0, Result* __restrict__ y1, Result* __restrict__ y2,
           const Element* __restrict__ x, const Element* __restrict__ weight0,
           const Element* __restrict__ weight1, const Element* __restrict__ weight2,
           const Element* __restrict__ bias0, const Element* __restrict__ bias1,
           const Element* __restrict__ bias2, int M, int N0, int N1, int N2, int K) {
  takeTurn();
  const Place place = placeOf(N0, N1, N2, SPAN);
  const int N = place.N, column = (place.block * WARPS + threadIdx.x / 32) * COLUMNS;
  const int row = blockIdx.y * ROWS;
  const Element* weight = place.pick(weight0, weight1, weight2);
  takeTurn([&] { fetchWeights(weight, place.block * SPAN, SPAN, N, K); });
  if (column >= N || row >= M) return;
  const Element* bias = place.pick(bias0, bias1, bias2);
  Result* y = place.pick(y0, y1, y2);
  float sums[COLUMNS][ROWS] = {};
  const auto rowOf = [&](int j) { return weight + (long long)min(column + j, N - 1) * K; };
  multiply(sums, x, rowOf, row, M, K);
#pragma unroll
  for (int m = 0; m < ROWS; m++) {
#pragma unroll
    for (int j = 0; j < COLUMNS; j++) {
      const float sum = warpSum(sums[j][m]);
      if (threadIdx.x % 32 != 0 || row + m >= M || column + j >= N) continue;
      const float offset = bias ? widen(bias[column + j]) : 0.0f;
      y[(long long)(row + m) * N + column + j] = result(sum + offset);
    }
  }
}

// Half of a warp's columns are gates, the other half what they let through.
extern "C" __global__ void __launch_bounds__(32 * WARPS, 3)
    linear_swiglu(Element* __restrict__ y, const Element* __restrict__ x,
                  const Element* __restrict__ gate, const Element* __restrict__ up, int M, int N,
                  int K) {
  takeTurn();
  constexpr int HALF = COLUMNS / 2, COUNT = WARPS * HALF;
  const int column = (blockIdx.x * WARPS + threadIdx.x / 32) * HALF, row = blockIdx.y * ROWS;
  takeTurn([&] {
    fetchWeights(gate, blockIdx.x * COUNT, COUNT, N, K);
    fetchWeights(up, blockIdx.x * COUNT, COUNT, N, K);
  });
  if (column >= N || row >= M) return;
  float sums[COLUMNS][ROWS] = {};
  const auto rowOf = [&](int j) {
    return (j < HALF ? gate : up) + (long long)min(column + j % HALF, N - 1) * K;
  };
  multiply(sums, x, rowOf, row, M, K);
#pragma unroll
  for (int m = 0; m < ROWS; m++) {
#pragma unroll
    for (int j = 0; j < HALF; j++) {
      const float a = warpSum(sums[j][m]), b = warpSum(sums[j + HALF][m]);
      if (threadIdx.x % 32 != 0 || row + m >= M || column + j >= N) continue;
      y[(long long)(row + m) * N + column + j] = gated(a, b);
    }
  }
}
