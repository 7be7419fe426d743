// Softmax mixtures over parts of the slots, and how they are put together.
//
// A mixture is not divided yet: Σ weight value, with the largest score, in powers of two, and the
// sum of weights, both sums relative to it. A part in which nothing is seen has the score −∞ and
// sums of 0, and adds nothing.
#pragma once

#include "common/types.cuh"

// By what sums relative to `peak` are multiplied to be relative to `higher`.
__device__ inline float decay(float peak, float higher) {
  return peak == higher ? 1.0f : exp2f(peak - higher);
}

// What the warps of a block found.
template <int D, int WARPS, int QUERIES>
struct Mixtures {
  float mixed[WARPS][QUERIES][D + 8];  // 8 more: rows begin in different banks
  float peak[WARPS][QUERIES];
  float total[WARPS][QUERIES];

  // Writes the mixture of all warps for the first `count` queries; headOf tells where.
  template <class HeadOf>
  __device__ void write(float* partial, float* peaks, float* totals, int count,
                        HeadOf headOf) const {
    for (int i = threadIdx.x; i < count * D; i += 32 * WARPS) {
      const int j = i / D, d = i % D;
      float higher = -INFINITE, whole = 0.0f, sum = 0.0f;
      for (int w = 0; w < WARPS; w++) higher = fmaxf(higher, peak[w][j]);
      for (int w = 0; w < WARPS; w++) {
        const float keep = decay(peak[w][j], higher);
        whole += total[w][j] * keep, sum += mixed[w][j][d] * keep;
      }
      const long long to = headOf(j);
      partial[to * D + d] = sum;
      if (d == 0) peaks[to] = higher, totals[to] = whole;
    }
  }
};
