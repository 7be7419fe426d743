// Elements of tensors that are walked by strides: element (i0, i1, i2, i3) lies Σ i·stride after
// the first, and a stride is 0 along a broadcast axis.
#pragma once

// Place of element number `at` of sizes (…, n1, n2, n3).
__device__ inline long long place(long long at, int n1, int n2, long long n3, int s0, int s1,
                                  int s2, int s3) {
  if (at < n3) return at * s3;  // always so in dense tensors, which are one axis: no division
  const long long i3 = at % n3, i2 = at / n3 % n2, i1 = at / n3 / n2 % n1, i0 = at / n3 / n2 / n1;
  return i0 * s0 + i1 * s1 + i2 * s2 + i3 * s3;
}
