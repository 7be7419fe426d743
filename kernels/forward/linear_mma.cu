// linear for up to 8 rows in bf16, on tensor cores: y = x weightᵀ + bias, bound by reading the
// weights.
//
// in, out   as in forward/linear.cu; K is a multiple of 32
// reference: core/ops/linear.ts; products are added in float, by the tensor cores and then warp by
// warp, so the order depends on K alone.
//
// A block computes 16 columns for all rows. Its warps share K: each takes every WARPS-th CHUNK of
// it, with the weights as the left operand (16 columns of y) and x as the right one (8 rows). A
// lane reads 8 neighbouring elements of a row at once, four for one product and four for the next:
// which k meets which place of an operand is free, as long as both operands agree.
#include "common/layers.cuh"
#include "common/ptx.cuh"
#include "common/types.cuh"

constexpr int WARPS = 8, SPAN = 16, ROWS = 8, CHUNK = 32;

struct alignas(16) Words {
  unsigned v[4];
};

__device__ inline Words wordsAt(const Element* p) { return *reinterpret_cast<const Words*>(p); }

extern "C" __global__ void __launch_bounds__(32 * WARPS)
    linear_mma(Result* __restrict__ y0, Result* __restrict__ y1, Result* __restrict__ y2,
               const Element* __restrict__ x, const Element* __restrict__ weight0,
               const Element* __restrict__ weight1, const Element* __restrict__ weight2,
               const Element* __restrict__ bias0, const Element* __restrict__ bias1,
               const Element* __restrict__ bias2, int M, int N0, int N1, int N2, int K) {
  const Layer layer =
      layerOf<SPAN>({weight0, bias0, y0, N0}, {weight1, bias1, y1, N1}, {weight2, bias2, y2, N2});
  const int N = layer.N, column = layer.column;
  if (column >= N) return;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, pair = lane % 4;

  // Past the edge the last column is computed again and not stored; rows past M are zeros.
  const Element* upper = layer.weight + (long long)min(column + group, N - 1) * K + pair * 8;
  const Element* lower = layer.weight + (long long)min(column + group + 8, N - 1) * K + pair * 8;
  const Element* row = x + (long long)min(group, M - 1) * K + pair * 8;
  const unsigned kept = group < M ? ~0u : 0u;
  float sums[4] = {};
#pragma unroll 4
  for (int k = warp * CHUNK; k < K; k += WARPS * CHUNK) {
    const Words a = wordsAt(upper + k), b = wordsAt(lower + k), c = wordsAt(row + k);
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      const unsigned left[4] = {a.v[i], b.v[i], a.v[i + 1], b.v[i + 1]};
      const unsigned right[2] = {c.v[i] & kept, c.v[i + 1] & kept};
      mma_m16n8k16_bf16(sums, left, right);
    }
  }

  __shared__ float parts[WARPS][ROWS][SPAN];
#pragma unroll
  for (int i = 0; i < 4; i++) parts[warp][pair * 2 + i % 2][group + i / 2 * 8] = sums[i];
  __syncthreads();
  const int m = threadIdx.x / SPAN, n = column + threadIdx.x % SPAN;
  if (m >= M || n >= N) return;
  float sum = layer.bias ? toFloat(layer.bias[n]) : 0.0f;
#pragma unroll
  for (int each = 0; each < WARPS; each++) sum += parts[each][m][threadIdx.x % SPAN];
  layer.y[(long long)m * N + n] = result(sum);
}
