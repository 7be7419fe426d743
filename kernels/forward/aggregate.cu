// mix_streams: the ParScale mixture of streams, y = Σ_p w[p] x[p].
//
// in   x [P, N, C], weights [N, P] f32
// out  y [N, C]
// saved for backward: weights, x
// reference: core/ops/aggregate.ts; float inside, streams added in order.
#include "common/types.cuh"

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
