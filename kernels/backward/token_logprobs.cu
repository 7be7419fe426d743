// Gradient of token_logprobs: dlogits = dy (onehot(target) − softmax(logits)).
//
// in   dy [N] f32, logits [N, V], targets [N] i32, normalizer [N] f32 as the forward pass saved
//      it
// out  dlogits [N, V]; it may be logits
// reference: the rule in core/ops/token_logprobs.ts; float inside.
#include "common/types.cuh"

constexpr int THREADS = 512;

extern "C" __global__ void __launch_bounds__(THREADS)
    token_logprobs_backward(Element* dlogits, const float* __restrict__ dy, const Element* logits,
                            const int* __restrict__ targets, const float* __restrict__ normalizer,
                            int N, int V) {
  const int n = blockIdx.x;
  if (n >= N) return;
  const long long row = (long long)n * V;
  const int step = packStep(V), target = targets[n];
  const float upstream = dy[n], all = normalizer[n];
  for (int v = threadIdx.x * step; v < V; v += THREADS * step) {
    Pack a = load(logits + row + v, step);
#pragma unroll
    for (int i = 0; i < WIDTH; i++) {
      a.v[i] = upstream * ((v + i == target ? 1.0f : 0.0f) - expf(a.v[i] - all));
    }
    store(dlogits + row + v, a, step);
  }
}
