// write_slots: new keys or values into a cache, from slot start[row] on.
//
// in   update [R, T, K·D], start [B] i32 (row r uses start[r mod B])
// out  cache [R, K, S, D], all other slots untouched
// saved for backward: nothing; caches have no gradient
// reference: write_slots of core/graph/primitives.ts behind the transpose of
// core/model/forward.ts, equal to the bit. Not yet run on a GPU.
// A token whose slot is not in the cache is dropped: a row that has stopped may be sent past the
// end.
#include "common/types.cuh"

extern "C" __global__ void __launch_bounds__(256)
    write_slots(Element* __restrict__ cache, const Element* __restrict__ update,
                const int* __restrict__ start, int R, int B, int T, int K, int S, int D) {
  const int step = packStep(D);
  const long long at = ((long long)blockIdx.x * blockDim.x + threadIdx.x) * step;
  if (at >= (long long)R * T * K * D) return;
  const int d = (int)(at % D), k = (int)(at / D % K), t = (int)(at / D / K % T);
  const int row = (int)(at / D / K / T), slot = start[row % B] + t;
  if (slot < 0 || slot >= S) return;
  store(cache + (((long long)row * K + k) * S + slot) * D + d, load(update + at, step), step);
}
