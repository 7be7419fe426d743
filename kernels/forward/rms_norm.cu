// rms_norm: y = x / √(mean(x²) + ε) · weight over rows of C, where x may be a sum of two.
//
// in   x [rows, C], residual [rows, C] or null, weight [C]
// out  y [rows, C]; sum = x + residual [rows, C], where there is a residual (it may be x or
//      residual: each element is read before it is written, and by the same thread)
// saved for backward: the inputs
// reference: core/ops/rms_norm.ts, after add in core/graph/primitives.ts; statistics in float, so
// in bf16 only the results are rounded.
// One warp per row; the second reading of a row comes from the first-level cache.
#include "common/reduce.cuh"
#include "common/types.cuh"

constexpr int WARPS = 8;

extern "C" __global__ void __launch_bounds__(32 * WARPS)
    rms_norm(Element* __restrict__ y, Element* sum, const Element* x, const Element* residual,
             const Element* __restrict__ weight, int rows, int C, float epsilon) {
  const int row = blockIdx.x * WARPS + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= rows) return;
  const long long at = (long long)row * C;
  const int step = packStep(C);
  float squares = 0.0f;
  for (int c = lane * step; c < C; c += 32 * step) {
    Pack a = load(x + at + c, step);
    if (residual) {
      const Pack b = load(residual + at + c, step);
#pragma unroll
      for (int i = 0; i < WIDTH; i++) a.v[i] += b.v[i];
      store(sum + at + c, a, step);
      a = load(sum + at + c, step);  // rounded, as a separate add would have it
    }
#pragma unroll
    for (int i = 0; i < WIDTH; i++) squares += a.v[i] * a.v[i];
  }
  const float scale = 1.0f / sqrtf(warpSum(squares) / C + epsilon);
  for (int c = lane * step; c < C; c += 32 * step) {
    Pack a = load((residual ? sum : x) + at + c, step);  // what this lane wrote or read above
    const Pack w = load(weight + c, step);
#pragma unroll
    for (int i = 0; i < WIDTH; i++) a.v[i] = a.v[i] * scale * w.v[i];
    store(y + at + c, a, step);
  }
}
