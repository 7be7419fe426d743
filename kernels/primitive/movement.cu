// Primitives that move elements of BYTES bytes without computing.
//
// copy: y[Σ i·ystride] = x[Σ i·xstride] for all indices; which is transpose, slice, broadcast (a
//       stride of 0 in x) and each part of concat, as the strides say. yFirst and xFirst are the
//       places of the first elements.
// gather: x [outer, size, inner], indices [count] i32; y [outer, count, inner]. An index outside
//       gives zeros instead of a read from elsewhere.
// reference: core/graph/primitives/{movement,indexing}.ts, equal bit for bit.
#if BYTES == 1
typedef unsigned char Unit;
#elif BYTES == 2
typedef unsigned short Unit;
#else
typedef unsigned Unit;
#endif

extern "C" __global__ void __launch_bounds__(256)
    copy(Unit* y, const Unit* x, long long count, int n1, int n2, int n3, long long yFirst, int y0,
         int y1, int y2, int y3, long long xFirst, int x0, int x1, int x2, int x3) {
  const long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= count) return;
  const long long i3 = at % n3, i2 = at / n3 % n2, i1 = at / n3 / n2 % n1, i0 = at / n3 / n2 / n1;
  y[yFirst + i0 * y0 + i1 * y1 + i2 * y2 + i3 * y3] =
      x[xFirst + i0 * x0 + i1 * x1 + i2 * x2 + i3 * x3];
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
