// Primitives that move elements of BYTES bytes without computing.
//
// copy: y[yFirst + Σ i·ystride] = x[xFirst + Σ i·xstride] for all indices; which is transpose,
//       slice, broadcast and each part of concat, as the strides say (see strides.cuh).
// gather: x [outer, size, inner], indices [count] i32; y [outer, count, inner]. An index outside
//       gives zeros instead of a read from elsewhere. Embeddings are rows gathered from a table.
// write_slots: cache [R, K, S, D] in place, update [R, K, T, D], start [R] i32: token t of a row
//       goes to slot start + t. A token whose slot is not in the cache is dropped: a row that has
//       stopped may be sent past the end.
// reference: core/graph/primitives/{movement,indexing}.ts, equal bit for bit.
#include "common/strides.cuh"

#if BYTES == 1
typedef unsigned char Unit;
#elif BYTES == 2
typedef unsigned short Unit;
#else
typedef unsigned Unit;
#endif

extern "C" __global__ void __launch_bounds__(256)
    copy(Unit* y, const Unit* x, long long count, int n1, int n2, long long n3, long long yFirst,
         int y0, int y1, int y2, int y3, long long xFirst, int x0, int x1, int x2, int x3) {
  const long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= count) return;
  y[yFirst + place(at, n1, n2, n3, y0, y1, y2, y3)] =
      x[xFirst + place(at, n1, n2, n3, x0, x1, x2, x3)];
}

extern "C" __global__ void __launch_bounds__(256)
    gather(Unit* __restrict__ y, const Unit* __restrict__ x, const int* __restrict__ indices,
           int outer, int size, int count, int inner) {
  const long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= (long long)outer * count * inner) return;
  const long long i = at % inner, o = at / inner / count;
  const int index = indices[at / inner % count];
  const bool known = index >= 0 && index < size;
  y[at] = known ? x[(o * size + index) * inner + i] : (Unit)0;
}

extern "C" __global__ void __launch_bounds__(256)
    write_slots(Unit* __restrict__ cache, const Unit* __restrict__ update,
                const int* __restrict__ start, int R, int T, int K, int S, int D) {
  const long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= (long long)R * K * T * D) return;
  const long long head = at / D / T;  // row · K + k
  const long long slot = start[head / K] + at / D % T;
  if (slot >= 0 && slot < S) cache[(head * S + slot) * D + at % D] = update[at];
}
