// write_slots: new keys or values into a cache, from slot start[row] on.
//
// in   update [R, K, T, D]; start [R] i32
// out  cache [R, K, S, D], in place, all other slots untouched
// saved for backward: nothing; caches have no gradient
// reference: write_slots of core/graph/primitives.ts, equal bit for bit.
// A token whose slot is not in the cache is dropped: a row that has stopped may be sent past the
// end.
#include "common/types.cuh"

extern "C" __global__ void __launch_bounds__(256)
    write_slots(Element* __restrict__ cache, const Element* __restrict__ update,
                const int* __restrict__ start, int R, int T, int K, int S, int D) {
  const int step = packStep(D);
  const long long at = ((long long)blockIdx.x * blockDim.x + threadIdx.x) * step;
  if (at >= (long long)R * K * T * D) return;
  const int d = (int)(at % D), t = (int)(at / D % T);
  const long long head = at / D / T;  // row · K + k
  const int slot = start[head / K] + t;
  if (slot < 0 || slot >= S) return;
  store(cache + (head * S + slot) * D + d, load(update + at, step), step);
}
