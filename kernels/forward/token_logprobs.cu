// token_logprobs: logits[n, target] − log Σ exp(logits[n]), natural logarithm, in one reading.
//
// in   logits [N, V], targets [N] i32
// out  logprobs [N] f32
// saved for backward: normalizer = log Σ exp(logits[n]) [N] f32
// reference: core/ops/token_logprobs.ts; float inside, about 1e-6 of the
// largest logit. A target outside the vocabulary gives NaN, which no later sum hides.
#include "common/reduce.cuh"
#include "common/types.cuh"

constexpr int THREADS = 512;

extern "C" __global__ void __launch_bounds__(THREADS)
    token_logprobs(float* __restrict__ logprobs, float* __restrict__ normalizer,
                   const Element* __restrict__ logits, const int* __restrict__ targets, int N,
                   int V) {
  const int n = blockIdx.x;
  if (n >= N) return;
  __shared__ float scratch[THREADS / 32];
  const Element* row = logits + (long long)n * V;  // (V)
  const int step = packStep(V);
  float rowMax = -INFINITE, rowSum = 0.0f;  // of what this thread has seen: Σ exp(x − rowMax)
  for (int v = threadIdx.x * step; v < V; v += THREADS * step) {
    const Pack a = load(row + v, step);
    float highest = a.v[0];
#pragma unroll
    for (int i = 1; i < WIDTH; i++) highest = i < step ? fmaxf(highest, a.v[i]) : highest;
    if (highest == -INFINITE) continue;  // hidden tokens: nothing to add, and no NaN of −∞ − −∞
    if (highest > rowMax) {
      rowSum *= expf(rowMax - highest);
      rowMax = highest;
    }
#pragma unroll
    for (int i = 0; i < WIDTH; i++) rowSum += i < step ? expf(a.v[i] - rowMax) : 0.0f;
  }
  const float blockRowMax = blockMax(rowMax, scratch);
  const float share = rowMax == -INFINITE ? 0.0f : rowSum * expf(rowMax - blockRowMax);
  const float sum = blockSum(share, scratch);
  if (threadIdx.x != 0) return;
  const float all = blockRowMax + logf(sum);
  const int target = targets[n];
  const bool known = target >= 0 && target < V;
  logprobs[n] = known ? toFloat(row[known ? target : 0]) - all : __int_as_float(0x7fc00000);
  normalizer[n] = all;
}
