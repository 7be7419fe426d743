// The ParScale mixture of streams: w = softmax(scores)(1 − ε) + ε/P, y = Σ_p w[p] x[p].
//
// in   x [P, N, C], scores [N, P], smoothing ε
// out  stream_weights: weights [N, P] f32; mix_streams: y [N, C]
// saved for backward: weights, x
// reference: core/ops/aggregate.ts; softmax and sums in float, streams added in order.
#include "common/types.cuh"

// P is small, so a thread walks its row three times rather than keep it in registers.
extern "C" __global__ void __launch_bounds__(128)
    stream_weights(float* __restrict__ weights, const Element* __restrict__ scores, int N, int P,
                   float smoothing) {
  const int n = blockIdx.x * blockDim.x + threadIdx.x;
  if (n >= N) return;
  const Element* row = scores + (long long)n * P;  // (P)
  float rowMax = -INFINITE, rowSum = 0.0f;
  for (int p = 0; p < P; p++) rowMax = fmaxf(rowMax, toFloat(row[p]));
  for (int p = 0; p < P; p++) rowSum += expf(toFloat(row[p]) - rowMax);
  for (int p = 0; p < P; p++) {
    const float share = expf(toFloat(row[p]) - rowMax) / rowSum;
    weights[(long long)n * P + p] = share * (1.0f - smoothing) + smoothing / P;
  }
}

extern "C" __global__ void __launch_bounds__(256)
    mix_streams(Element* __restrict__ y, const Element* __restrict__ x,
                const float* __restrict__ weights, int P, int N, int C) {
  const int step = packStep(C);
  const long long at = ((long long)blockIdx.x * blockDim.x + threadIdx.x) * step;  // n, c
  if (at >= (long long)N * C) return;
  const float* row = weights + at / C * P;  // (P)
  Pack sum = {};
  for (int p = 0; p < P; p++) {
    const Pack a = load(x + (long long)p * N * C + at, step);
#pragma unroll
    for (int i = 0; i < WIDTH; i++) sum.v[i] += row[p] * a.v[i];
  }
  store(y + at, sum, step);
}
