// Elementwise primitives, with broadcasting as in NumPy.
//
// in   operands whose element at (i0, i1, i2, i3) lies Σ i·stride behind the first; strides are 0
//      along broadcast axes. Sizes n1, n2, n3 are those of the result, n0 follows from count
// out  y, dense
// reference: core/graph/primitives/elementwise.ts, in float; exp, log and σ within 2 units in the
// last place, sine and cosine within 1, the rest exact.
// `op` is a number so that one compilation serves all; it is the same for the whole grid.
#include "common/angle.cuh"
#include "common/types.cuh"

struct Strides {
  int i0, i1, i2, i3;
};

__device__ inline long long place(long long at, int n1, int n2, int n3, Strides s) {
  const long long i3 = at % n3, i2 = at / n3 % n2, i1 = at / n3 / n2 % n1, i0 = at / n3 / n2 / n1;
  return i0 * s.i0 + i1 * s.i1 + i2 * s.i2 + i3 * s.i3;
}

template <class T>
__device__ inline T combine(T a, T b, int op) {
  switch (op) {
    case 0: return a + b;
    case 1: return a - b;
    case 2: return a * b;
    default: return a / b;
  }
}

__device__ inline long long own() { return (long long)blockIdx.x * blockDim.x + threadIdx.x; }

extern "C" __global__ void __launch_bounds__(256)
    unary(float* y, const float* x, long long count, int op) {
  const long long at = own();
  if (at >= count) return;
  const float a = x[at];
  switch (op) {
    case 0: y[at] = expf(a); break;
    case 1: y[at] = logf(a); break;
    case 2: y[at] = sqrtf(a); break;
    case 3: y[at] = sineOf(a, 0); break;
    case 4: y[at] = sineOf(a, 1); break;
    default: y[at] = sigmoid(a); break;
  }
}

extern "C" __global__ void __launch_bounds__(256)
    binary(float* y, const float* a, const float* b, long long count, int op, int n1, int n2,
           int n3, int a0, int a1, int a2, int a3, int b0, int b1, int b2, int b3) {
  const long long at = own();
  if (at >= count) return;
  const float left = a[place(at, n1, n2, n3, {a0, a1, a2, a3})];
  const float right = b[place(at, n1, n2, n3, {b0, b1, b2, b3})];
  y[at] = combine(left, right, op);
}

extern "C" __global__ void __launch_bounds__(256)
    binary_integers(int* y, const int* a, const int* b, long long count, int op, int n1, int n2,
                    int n3, int a0, int a1, int a2, int a3, int b0, int b1, int b2, int b3) {
  const long long at = own();
  if (at >= count) return;
  const int left = a[place(at, n1, n2, n3, {a0, a1, a2, a3})];
  const int right = b[place(at, n1, n2, n3, {b0, b1, b2, b3})];
  y[at] = combine(left, right, op);
}

extern "C" __global__ void __launch_bounds__(256)
    less_equal(unsigned char* y, const float* a, const float* b, long long count, int n1, int n2,
               int n3, int a0, int a1, int a2, int a3, int b0, int b1, int b2, int b3) {
  const long long at = own();
  if (at >= count) return;
  const float left = a[place(at, n1, n2, n3, {a0, a1, a2, a3})];
  const float right = b[place(at, n1, n2, n3, {b0, b1, b2, b3})];
  y[at] = left <= right;
}

extern "C" __global__ void __launch_bounds__(256)
    less_equal_integers(unsigned char* y, const int* a, const int* b, long long count, int n1,
                        int n2, int n3, int a0, int a1, int a2, int a3, int b0, int b1, int b2,
                        int b3) {
  const long long at = own();
  if (at >= count) return;
  const int left = a[place(at, n1, n2, n3, {a0, a1, a2, a3})];
  const int right = b[place(at, n1, n2, n3, {b0, b1, b2, b3})];
  y[at] = left <= right;
}

extern "C" __global__ void __launch_bounds__(256)
    select_floats(float* __restrict__ y, const unsigned char* __restrict__ condition,
                  const float* __restrict__ a, const float* __restrict__ b, long long count,
                  int n1, int n2, int n3, int c0, int c1, int c2, int c3, int a0, int a1, int a2,
                  int a3, int b0, int b1, int b2, int b3) {
  const long long at = own();
  if (at >= count) return;
  const bool chosen = condition[place(at, n1, n2, n3, {c0, c1, c2, c3})];
  y[at] = chosen ? a[place(at, n1, n2, n3, {a0, a1, a2, a3})]
                 : b[place(at, n1, n2, n3, {b0, b1, b2, b3})];
}
