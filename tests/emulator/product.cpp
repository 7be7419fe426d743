// D = op(A) op(B) + bias, column-major, as cuBLASLt has it: f32 or bf16 inside and out, f32 sums.
//
// A is packed as float, one row of D's rows for each k. Every element is summed in the order of k, so a
// result does not depend on the sizes.
#include "emulator/machine.hpp"

#include <stdlib.h>
#include <string.h>

namespace {

constexpr int F32 = 0;

float get(const void* matrix, int type, long long at) {
  if (type == F32) return static_cast<const float*>(matrix)[at];
  const unsigned bits = (unsigned)static_cast<const unsigned short*>(matrix)[at] << 16;
  float x;
  memcpy(&x, &bits, 4);
  return x;
}

void put(void* matrix, int type, long long at, float x) {
  if (type == F32) {
    static_cast<float*>(matrix)[at] = x;
    return;
  }
  unsigned bits;
  memcpy(&bits, &x, 4);
  bits = x != x ? 0x7fff0000 : bits + 0x7fff + (bits >> 16 & 1);
  static_cast<unsigned short*>(matrix)[at] = (unsigned short)(bits >> 16);
}

struct Operand {
  void* at;
  long long ld, type, transposed;
};

// Element of op(X) at a row and a column.
float element(const Operand& x, long long row, long long column) {
  const long long at = x.transposed ? row * x.ld + column : column * x.ld + row;
  return get(x.at, (int)x.type, at);
}

}  // namespace

struct Product {
  long long m, n, k;
  Operand a, b, d;
  const void* bias;  // [m] or null
  long long biasType;
};

EXPORTED int machineProduct(const Product* product) {
  const auto& [m, n, k, a, b, d, bias, biasType] = *product;
  auto* left = static_cast<float*>(malloc(sizeof(float) * (m * k + m)));  // [k, m], and sums [m]
  if (!left) return 1;
  float* sums = left + m * k;
  for (long long at = 0; at < k; at++) {
    for (long long row = 0; row < m; row++) left[at * m + row] = element(a, row, at);
  }
  for (long long column = 0; column < n; column++) {
    memset(sums, 0, sizeof(float) * m);
    for (long long at = 0; at < k; at++) {
      const float right = element(b, at, column);
      for (long long row = 0; row < m; row++) sums[row] += left[at * m + row] * right;
    }
    for (long long row = 0; row < m; row++) {
      const float offset = bias ? get(bias, (int)biasType, row) : 0.0f;
      put(d.at, (int)d.type, column * d.ld + row, sums[row] + offset);
    }
  }
  free(left);
  return 0;
}
