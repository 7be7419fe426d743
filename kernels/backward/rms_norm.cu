// Gradient of rms_norm: with inverse = 1 / √(mean(x²) + ε), n = x · inverse and g = dy · weight,
//
//   dx = (g − n mean(g n)) · inverse,  dweight = Σ over rows of dy n
//
// in   dy, x [rows, C], weight [C]
// out  dx [rows, C] (may be dy); inverse [rows] f32; partial [ceil(rows / CHUNK), C] f32, whose sum
//      over the first axis is dweight
// reference: the rule in core/ops/rms_norm.ts; float inside.
#include "common/reduce.cuh"
#include "common/types.cuh"

constexpr int WARPS = 8, CHUNK = 64;

extern "C" __global__ void __launch_bounds__(32 * WARPS)
    rms_norm_backward(Element* dx, float* __restrict__ inverse, const Element* dy,
                      const Element* __restrict__ x, const Element* __restrict__ weight, int rows,
                      int C, float epsilon) {
  const int row = blockIdx.x * WARPS + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= rows) return;
  const long long at = (long long)row * C;
  const int step = packStep(C);
  float along = 0.0f, squares = 0.0f;
  for (int c = lane * step; c < C; c += 32 * step) {
    const Pack g = load(dy + at + c, step), a = load(x + at + c, step), w = load(weight + c, step);
#pragma unroll
    for (int i = 0; i < WIDTH; i++) {
      along += g.v[i] * w.v[i] * a.v[i];
      squares += a.v[i] * a.v[i];
    }
  }
  const float scale = 1.0f / sqrtf(warpSum(squares) / C + epsilon);
  along = warpSum(along) * scale / C;
  for (int c = lane * step; c < C; c += 32 * step) {
    Pack g = load(dy + at + c, step);
    const Pack a = load(x + at + c, step), w = load(weight + c, step);
#pragma unroll
    for (int i = 0; i < WIDTH; i++) {
      g.v[i] = (g.v[i] * w.v[i] - a.v[i] * scale * along) * scale;
    }
    store(dx + at + c, g, step);
  }
  if (lane == 0) inverse[row] = scale;
}

extern "C" __global__ void __launch_bounds__(128)
    rms_norm_weight(float* __restrict__ partial, const Element* __restrict__ dy,
                    const Element* __restrict__ x, const float* __restrict__ inverse, int rows,
                    int C) {
  const int c = blockIdx.x * blockDim.x + threadIdx.x;
  if (c >= C) return;
  const int begin = blockIdx.y * CHUNK, end = min(rows, begin + CHUNK);
  float sum = 0.0f;
  for (int row = begin; row < end; row++) {
    const long long at = (long long)row * C + c;
    sum += toFloat(dy[at]) * toFloat(x[at]) * inverse[row];
  }
  partial[(long long)blockIdx.y * C + c] = sum;
}
