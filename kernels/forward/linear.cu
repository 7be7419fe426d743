// linear for up to 8 rows: y = x weightᵀ + bias, where reading the weights is all the work (GEMV).
//
// in   x [M, K]; up to three weights [N0, K], [N1, K], [N2, K], each with a bias or null: layers
//      that read the same x, such as queries, keys and values, are one launch
// out  y0 [M, N0], y1, y2, float if F32_OUT else Element
// saved for backward: x, weights
// reference: core/ops/linear.ts; products are added in float, lane by lane, then over the warp, so
// the order depends on K alone.
//
// A warp computes COLUMNS columns for ROWS rows at once: each weight is read once, and each x once
// per COLUMNS columns. The blocks of the layers follow each other.
#include "common/layers.cuh"
#include "common/reduce.cuh"
#include "common/types.cuh"

constexpr int WARPS = 4, COLUMNS = 4, SPAN = WARPS * COLUMNS;

// Three blocks per processor: said outright, since the compiler else spills to fit one more.
extern "C" __global__ void __launch_bounds__(32 * WARPS, 3)
    linear(Result* __restrict__ y0, Result* __restrict__ y1, Result* __restrict__ y2,
           const Element* __restrict__ x, const Element* __restrict__ weight0,
           const Element* __restrict__ weight1, const Element* __restrict__ weight2,
           const Element* __restrict__ bias0, const Element* __restrict__ bias1,
           const Element* __restrict__ bias2, int M, int N0, int N1, int N2, int K) {
  const Layer layer =
      layerOf<SPAN>({weight0, bias0, y0, N0}, {weight1, bias1, y1, N1}, {weight2, bias2, y2, N2});
  const int N = layer.N, lane = threadIdx.x % 32;
  const int column = layer.column + threadIdx.x / 32 * COLUMNS;
  if (column >= N) return;

  // Past the edge the last row and the last column are computed again and not stored.
  float sums[COLUMNS][ROWS] = {};
  const int step = packStep(K);
  for (int k = lane * step; k < K; k += 32 * step) {
    Pack w[COLUMNS];
#pragma unroll
    for (int j = 0; j < COLUMNS; j++) {
      w[j] = load(layer.weight + (long long)min(column + j, N - 1) * K + k, step);
    }
#pragma unroll
    for (int m = 0; m < ROWS; m++) {
      const Pack a = load(x + (long long)min(m, M - 1) * K + k, step);
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
      if (lane != 0 || m >= M || column + j >= N) continue;
      const float offset = layer.bias ? toFloat(layer.bias[column + j]) : 0.0f;
      layer.y[(long long)m * N + column + j] = result(sum + offset);
    }
  }
}
