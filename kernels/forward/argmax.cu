// argmax: the index of the largest element of each row, the lowest among equals.
//
// in   x [N, V]
// out  index [N] i32
// saved for backward: nothing
// reference: argmax of core/graph/primitives.ts, equal.
#include "common/reduce.cuh"
#include "common/types.cuh"

constexpr int THREADS = 512;

__device__ inline void keepBetter(float& value, int& index, float other, int at) {
  if (other > value || (other == value && at < index)) {
    value = other;
    index = at;
  }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    argmax(int* __restrict__ index, const Element* __restrict__ x, int N, int V) {
  const int n = blockIdx.x;
  if (n >= N) return;
  __shared__ float values[THREADS / 32];
  __shared__ int places[THREADS / 32];
  const Element* row = x + (long long)n * V;  // (V)
  const int step = packStep(V);
  float best = -INFINITE;
  int place = V;
  for (int v = threadIdx.x * step; v < V; v += THREADS * step) {
    const Pack a = load(row + v, step);
#pragma unroll
    for (int i = 0; i < WIDTH; i++) {
      if (i < step) keepBetter(best, place, a.v[i], v + i);
    }
  }
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    const float other = __shfl_xor_sync(ALL, best, distance);
    const int at = __shfl_xor_sync(ALL, place, distance);
    keepBetter(best, place, other, at);
  }
  if (threadIdx.x % 32 == 0) {
    values[threadIdx.x / 32] = best;
    places[threadIdx.x / 32] = place;
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int warp = 1; warp < THREADS / 32; warp++) {
    keepBetter(best, place, values[warp], places[warp]);
  }
  index[n] = place < V ? place : 0;  // a row of NaN has no largest element
}
