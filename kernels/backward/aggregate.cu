// Gradients of mix_streams: dx[p] = w[p] dy,  dw[p] = Σ_c dy x[p].
//
// in   dy [N, C], x [P, N, C], weights [N, P] f32
// out  dx [P, N, C], dweights [N, P] f32
// reference: the product that core/ops/aggregate.ts stands for, differentiated; float inside.
#include "common/reduce.cuh"
#include "common/types.cuh"

constexpr int THREADS = 128;

extern "C" __global__ void __launch_bounds__(THREADS)
    mix_streams_backward(Element* __restrict__ dx, float* __restrict__ dweights,
                         const Element* __restrict__ dy, const Element* __restrict__ x,
                         const float* __restrict__ weights, int P, int N, int C) {
  const int n = blockIdx.x;
  if (n >= N) return;
  __shared__ float scratch[THREADS / 32];
  const int step = packStep(C);
  for (int p = 0; p < P; p++) {
    const long long at = ((long long)p * N + n) * C;
    const float weight = weights[(long long)n * P + p];
    float sum = 0.0f;
    for (int c = threadIdx.x * step; c < C; c += THREADS * step) {
      Pack g = load(dy + (long long)n * C + c, step);
      const Pack a = load(x + at + c, step);
#pragma unroll
      for (int i = 0; i < WIDTH; i++) {
        sum += g.v[i] * a.v[i];
        g.v[i] *= weight;
      }
      store(dx + at + c, g, step);
    }
    const float all = blockSum(sum, scratch);
    if (threadIdx.x == 0) dweights[(long long)n * P + p] = all;
  }
}
