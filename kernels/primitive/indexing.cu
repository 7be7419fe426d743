// Primitives that pick or raise single elements by index.
//
// take_last:   y[r] = x[r, indices[r]]                    x [rows, size], indices [rows] i32
// add_last:    y[r, indices[r]] += update[r], in place    y [rows, size]
// scatter_add: y[o, indices[j], i] += update[o, j, i], in place, repeated indices too
//              y [outer, size, inner], indices [count] i32, update [outer, count, inner]
// reference: core/graph/primitives/indexing.ts. An index outside gives NaN
// where it is read and changes nothing where it is written.
//
// Scatter_add needs neither sorting nor atomics. The block of an entry whose index occurred before
// leaves; that of the first adds all its entries in order, so equal inputs give equal bits.
#include "common/reduce.cuh"

constexpr int THREADS = 128;

extern "C" __global__ void __launch_bounds__(THREADS)
    take_last(float* __restrict__ y, const float* __restrict__ x, const int* __restrict__ indices,
              int rows, int size) {
  const int row = blockIdx.x * THREADS + threadIdx.x;
  if (row >= rows) return;
  const int index = indices[row];
  const bool known = index >= 0 && index < size;
  y[row] = known ? x[(long long)row * size + index] : __int_as_float(0x7fc00000);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    add_last(float* __restrict__ y, const int* __restrict__ indices,
             const float* __restrict__ update, int rows, int size) {
  const int row = blockIdx.x * THREADS + threadIdx.x;
  if (row >= rows) return;
  const int index = indices[row];
  if (index >= 0 && index < size) y[(long long)row * size + index] += update[row];
}

extern "C" __global__ void __launch_bounds__(THREADS)
    scatter_add(float* __restrict__ y, const int* __restrict__ indices,
                const float* __restrict__ update, int outer, int size, int count, int inner) {
  const int entry = blockIdx.x, o = blockIdx.y;
  if (entry >= count || o >= outer) return;
  __shared__ float scratch[THREADS / 32];
  __shared__ bool same[THREADS];
  const int index = indices[entry];
  float before = 0.0f;
  for (int i = threadIdx.x; i < entry; i += THREADS) before += indices[i] == index;
  if (blockMax(before, scratch) > 0.0f || index < 0 || index >= size) return;
  float* row = y + ((long long)o * size + index) * inner;     // (inner)
  const float* rows = update + (long long)o * count * inner;  // (count, inner)
  for (int begin = entry; begin < count; begin += THREADS) {
    const int own = begin + threadIdx.x;
    same[threadIdx.x] = own < count && indices[own] == index;
    __syncthreads();
    for (int j = 0; j < THREADS; j++) {
      if (!same[j]) continue;
      for (int i = threadIdx.x; i < inner; i += THREADS) {
        row[i] += rows[(long long)(begin + j) * inner + i];
      }
    }
    __syncthreads();
  }
}
