// attention_combine: what the splits of an attention found, put together in their order.
//
//   out = Σ partial / Σ totals, both relative to the largest of all scores
//
// in   partial [splits, heads, D], peaks, totals [splits, heads] f32: common/mixtures.cuh
// out  out [heads, D]
// saved for backward: normalizer = log Σ exp(score) [heads] f32, where it is not null
// reference: core/ops/attention.ts; output rounding.
//
// heads counts the query heads of all tokens of all rows; a block has one of them, and its warps
// take splits in turn. As in attention, a query that sees no slot gives zeros.
#include "common/mixtures.cuh"
#include "common/reduce.cuh"
#include "common/turn.cuh"

constexpr int D = HEAD_DIM, WARPS = 4, THREADS = 32 * WARPS, PARTS = (D + 31) / 32;
constexpr float LN2 = 0.69314718f;

extern "C" __global__ void __launch_bounds__(32 * WARPS)
    attention_combine(Element* __restrict__ out, float* __restrict__ normalizer,
                      const float* __restrict__ partial, const float* __restrict__ peaks,
                      const float* __restrict__ totals, long long heads, int splits) {
  takeTurn();
  const long long head = blockIdx.x;
  if (head >= heads) return;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  __shared__ float keep[THREADS], mixedOf[WARPS][D], scratch[WARPS];

  float higher = -INFINITE;
  for (int split = threadIdx.x; split < splits; split += THREADS) {
    higher = fmaxf(higher, peaks[split * heads + head]);
  }
  higher = blockMax(higher, scratch);
  float total = 0.0f, mixed[PARTS] = {};
  for (int begin = 0; begin < splits; begin += THREADS) {
    const long long at = (begin + (int)threadIdx.x) * heads + head;
    const float own = begin + threadIdx.x < splits ? totals[at] : 0.0f;
    __syncthreads();  // all have read the last ones
    keep[threadIdx.x] = own > 0.0f ? decay(peaks[at], higher) : 0.0f;
    total += own * keep[threadIdx.x];
    __syncthreads();
    const int count = min(THREADS, splits - begin);
#pragma unroll 4
    for (int i = warp; i < count; i += WARPS) {
      const float each = keep[i];
      const float* from = partial + ((begin + i) * heads + head) * D;
#pragma unroll
      for (int e = 0; e < PARTS; e++) {
        const int d = lane + 32 * e;
        if (each > 0.0f && d < D) mixed[e] += from[d] * each;
      }
    }
  }
  total = blockSum(total, scratch);
#pragma unroll
  for (int e = 0; e < PARTS; e++) {
    const int d = lane + 32 * e;
    if (d < D) mixedOf[warp][d] = mixed[e];
  }
  __syncthreads();
  const float inverse = total > 0.0f ? 1.0f / total : 0.0f;
  for (int d = threadIdx.x; d < D; d += THREADS) {
    float sum = 0.0f;
    for (int w = 0; w < WARPS; w++) sum += mixedOf[w][d];
    out[head * D + d] = narrow(sum * inverse);
  }
  if (normalizer && threadIdx.x == 0) normalizer[head] = (higher + log2f(total)) * LN2;
}
