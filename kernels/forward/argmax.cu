// argmax: the index of the largest element of each row, the lowest among equals.
//
// in   x [N, V]
// out  index [N] i32
// saved for backward: nothing
// reference: argmax of core/graph/primitives.ts, equal.
#include "common/reduce.cuh"
#include "common/types.cuh"

constexpr int THREADS = 512;

extern "C" __global__ void __launch_bounds__(THREADS)
    argmax(int* __restrict__ index, const Element* __restrict__ x, int N, int V) {
  const int n = blockIdx.x;
  if (n >= N) return;
  __shared__ Best scratch[THREADS / 32];
  const Element* row = x + (long long)n * V;  // (V)
  const int step = packStep(V);
  Best best = {-INFINITE, V};
  for (int v = threadIdx.x * step; v < V; v += THREADS * step) {
    const Pack a = load(row + v, step);
#pragma unroll
    for (int i = 0; i < WIDTH; i++) {
      if (i < step) best.keep(a.v[i], v + i);
    }
  }
  best = blockBest(best, scratch);
  // A row of NaN has no largest element.
  if (threadIdx.x == 0) index[n] = best.place < V ? best.place : 0;
}
