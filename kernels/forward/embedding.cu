// embedding: y[t] = table[ids[t]].
//
// in   table [V, C], ids [tokens] i32
// out  y [tokens, C]
// saved for backward: nothing but the ids
// reference: core/ops/embedding.ts, equal bit for bit.
// An id outside the table gives a row of zeros instead of a read from elsewhere.
#include "common/types.cuh"

extern "C" __global__ void __launch_bounds__(128)
    embedding(Element* __restrict__ y, const Element* __restrict__ table,
              const int* __restrict__ ids, int tokens, int C, int V) {
  const int token = blockIdx.x;
  if (token >= tokens) return;
  const int id = ids[token];
  const bool known = id >= 0 && id < V;
  const Element* from = table + (long long)(known ? id : 0) * C;  // (C)
  Element* to = y + (long long)token * C;                         // (C)
  const int step = packStep(C);
  for (int c = threadIdx.x * step; c < C; c += blockDim.x * step) {
    store(to + c, load(from + c, known ? step : 0), step);
  }
}
