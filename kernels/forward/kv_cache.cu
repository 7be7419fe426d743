// write_slots: new keys or values into a cache, from slot start[row] on.
//
// in   update: element d of token t and head k of row r lies r·rowStride + t·tokenStride +
//      k·headStride + d behind the first, so heads or tokens may come first; start [starts] i32,
//      row r uses start[r mod starts]
// out  cache [R, K, S, D], in place, all other slots untouched
// saved for backward: nothing; caches have no gradient
// reference: write_slots of core/graph/primitives.ts, equal bit for bit.
// A token whose slot is not in the cache is dropped: a row that has stopped may be sent past the
// end.
#include "common/types.cuh"

extern "C" __global__ void __launch_bounds__(256)
    write_slots(Element* __restrict__ cache, const Element* __restrict__ update,
                const int* __restrict__ start, int R, int starts, int T, int K, int S, int D,
                int rowStride, int tokenStride, int headStride) {
  const int step = packStep(D);
  const long long at = ((long long)blockIdx.x * blockDim.x + threadIdx.x) * step;
  if (at >= (long long)R * T * K * D) return;
  const int d = (int)(at % D), k = (int)(at / D % K), t = (int)(at / D / K % T);
  const int row = (int)(at / D / K / T), slot = start[row % starts] + t;
  if (slot < 0 || slot >= S) return;
  const Element* from =
      update + (long long)row * rowStride + (long long)t * tokenStride + (long long)k * headStride;
  store(cache + (((long long)row * K + k) * S + slot) * D + d, load(from + d, step), step);
}
