// Elementwise primitives and casts, with broadcasting as in NumPy.
//
// in   a, b, c, of which an op reads as many as it has, by strides (see strides.cuh)
// out  y, dense; it may be an operand that is walked as the result is
// reference: core/graph/primitives/elementwise.ts, in float; exp, log and σ within 2 units in the
// last place, sine and cosine within 1, the rest exact. Bfloat16 is rounded to nearest even.
//
// `op` counts the list in core/runtime/cuda/kernels/strided.ts. It is a number so that one
// compilation serves all; it is the same for the whole grid.
#include "common/strides.cuh"
#include "common/types.cuh"

// The sine, or the cosine where `shift` is 1: the sine a quarter turn later. In double, by Taylor
// series: sinf and cosf reduce large angles by means of memory on the stack. Angles are positions
// of tokens times a frequency, so they are large, and there are only a few kilobytes per program.
__device__ inline float sineOf(float angle, int shift) {
  const double turns = rint(angle * 0.63661977236758134308);  // quarters: 2/π
  const int quarter = (int)(((long long)turns + shift) & 3);
  // In [−π/4, π/4]; angles stay far below 2⁵³ ulp.
  const double r = (double)angle - turns * 1.57079632679489661923;  // π/2
  const double s = r * r;
  double sine = 1.0 / 6227020800.0, cosine = -1.0 / 87178291200.0;  // 1/13!, −1/14!
  sine = sine * s - 1.0 / 39916800.0, cosine = cosine * s + 1.0 / 479001600.0;
  sine = sine * s + 1.0 / 362880.0, cosine = cosine * s - 1.0 / 3628800.0;
  sine = sine * s - 1.0 / 5040.0, cosine = cosine * s + 1.0 / 40320.0;
  sine = sine * s + 1.0 / 120.0, cosine = cosine * s - 1.0 / 720.0;
  sine = sine * s - 1.0 / 6.0, cosine = cosine * s + 1.0 / 24.0;
  sine = (sine * s + 1.0) * r, cosine = (cosine * s - 0.5) * s + 1.0;
  const float result = (float)(quarter & 1 ? cosine : sine);
  return quarter & 2 ? -result : result;
}

// One element of a tensor of whatever type.
struct Operand {
  const void* data;
  long long at;

  __device__ float f() const { return static_cast<const float*>(data)[at]; }
  __device__ int i() const { return static_cast<const int*>(data)[at]; }
  __device__ bool is() const { return static_cast<const unsigned char*>(data)[at] != 0; }
  __device__ float half() const {
    return __uint_as_float((unsigned)static_cast<const unsigned short*>(data)[at] << 16);
  }
};

template <class T>
__device__ inline void put(void* y, long long at, T value) {
  static_cast<T*>(y)[at] = value;
}

extern "C" __global__ void __launch_bounds__(256)
    elementwise(void* y, const void* a, const void* b, const void* c, long long count, int op,
                int n1, int n2, long long n3, int a0, int a1, int a2, int a3, int b0, int b1,
                int b2, int b3, int c0, int c1, int c2, int c3) {
  const long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= count) return;
  const Operand A = {a, place(at, n1, n2, n3, a0, a1, a2, a3)};
  const Operand B = {b, place(at, n1, n2, n3, b0, b1, b2, b3)};
  const Operand C = {c, place(at, n1, n2, n3, c0, c1, c2, c3)};
  switch (op) {
    case 0: return put(y, at, A.f() + B.f());
    case 1: return put(y, at, A.f() - B.f());
    case 2: return put(y, at, A.f() * B.f());
    case 3: return put(y, at, A.f() / B.f());
    case 4: return put(y, at, A.i() + B.i());
    case 5: return put(y, at, A.i() - B.i());
    case 6: return put(y, at, A.i() * B.i());
    case 7: return put(y, at, A.i() / B.i());
    case 8: return put(y, at, cvt_rn_bf16(A.half() + B.half()));
    case 9: return put(y, at, A.f() <= B.f());
    case 10: return put(y, at, A.i() <= B.i());
    case 11: return put(y, at, A.is() ? B.f() : C.f());
    case 12: return put(y, at, expf(A.f()));
    case 13: return put(y, at, logf(A.f()));
    case 14: return put(y, at, sqrtf(A.f()));
    case 15: return put(y, at, sineOf(A.f(), 0));
    case 16: return put(y, at, sineOf(A.f(), 1));
    case 17: return put(y, at, sigmoid(A.f()));
    case 18: return put(y, at, cvt_rn_bf16(A.f()));
    case 19: return put(y, at, A.half());
    case 20: return put(y, at, (float)A.i());
    case 21: return put(y, at, A.is() ? 1.0f : 0.0f);
    case 22: return put(y, at, (int)A.f());
    case 23: return put(y, at, (int)at);
  }
}
