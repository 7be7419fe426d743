// Gradients of the weighted sum of streams. With s = softmax(scores) = (w − ε/P) / (1 − ε):
//
//   dx[p] = w[p] dy,  dw[p] = Σ_c dy x[p],  dscores = (1 − ε) s (dw − Σ s dw)
//
// in   dy [N, C], x [P, N, C], weights [N, P] f32, smoothing ε < 1
// out  dx [P, N, C]; dweights, dscores [N, P] f32
// reference: the rules in core/ops/aggregate.ts and core/ops/softmax.ts.
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

extern "C" __global__ void __launch_bounds__(128)
    stream_weights_backward(float* __restrict__ dscores, const float* __restrict__ dweights,
                            const float* __restrict__ weights, int N, int P, float smoothing) {
  const int n = blockIdx.x * blockDim.x + threadIdx.x;
  if (n >= N) return;
  const float* w = weights + (long long)n * P;    // (P)
  const float* dw = dweights + (long long)n * P;  // (P)
  const float floor = smoothing / P;
  float along = 0.0f;  // (1 − ε) Σ s dw
  for (int p = 0; p < P; p++) along += (w[p] - floor) * dw[p];
  along /= 1.0f - smoothing;
  for (int p = 0; p < P; p++) {
    dscores[(long long)n * P + p] = (w[p] - floor) * (dw[p] - along);
  }
}
