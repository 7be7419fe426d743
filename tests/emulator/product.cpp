// D = op(A) op(B) + bias, column-major, as cuBLASLt has it: f32 or bf16 inside and out, f32 sums.
//
// Operands are packed as float in panels of 16 rows and 6 columns, whose product is kept in vector registers.
// Every element is summed in the order of k, so a result does not depend on the sizes.
#include <stdlib.h>
#include <string.h>

namespace {

typedef float Vector __attribute__((vector_size(32)));
constexpr int LANES = 8, ROWS = 2 * LANES, COLUMNS = 6, F32 = 0;

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

// Panels of `width` indices i, each [k][width], zeros where i reaches beyond the matrix.
void pack(float* out, const void* matrix, int type, long long count, long long k, int width,
          long long strideI, long long strideK) {
  for (long long begin = 0; begin < count; begin += width) {
    const int inside = count - begin < width ? (int)(count - begin) : width;
    for (long long at = 0; at < k; at++, out += width) {
      for (int i = 0; i < width; i++) {
        out[i] = i < inside ? get(matrix, type, (begin + i) * strideI + at * strideK) : 0.0f;
      }
    }
  }
}

void multiplyPanels(float (&sums)[COLUMNS][ROWS], const float* a, const float* b, long long k) {
  Vector all[COLUMNS][2] = {};
  for (long long at = 0; at < k; at++, a += ROWS, b += COLUMNS) {
    Vector left, right;
    memcpy(&left, a, sizeof left);
    memcpy(&right, a + LANES, sizeof right);
#pragma GCC unroll 6
    for (int n = 0; n < COLUMNS; n++) {
      all[n][0] += left * b[n];
      all[n][1] += right * b[n];
    }
  }
  memcpy(sums, all, sizeof sums);
}

}  // namespace

struct Operand {
  void* at;
  long long ld, type, transposed;
};

struct Product {
  long long m, n, k;
  Operand a, b, d;
  const void* bias;  // [m] or null
  long long biasType;
};

extern "C" __attribute__((visibility("default"))) int machineProduct(const Product* product) {
  const auto& [m, n, k, a, b, d, bias, biasType] = *product;
  const long long panelsM = (m + ROWS - 1) / ROWS, panelsN = (n + COLUMNS - 1) / COLUMNS;
  auto* left = static_cast<float*>(malloc(sizeof(float) * (panelsM * ROWS * k + 1)));
  auto* right = static_cast<float*>(malloc(sizeof(float) * (panelsN * COLUMNS * k + 1)));
  if (!left || !right) return 1;
  pack(left, a.at, (int)a.type, m, k, ROWS, a.transposed ? a.ld : 1, a.transposed ? 1 : a.ld);
  pack(right, b.at, (int)b.type, n, k, COLUMNS, b.transposed ? 1 : b.ld, b.transposed ? b.ld : 1);
  for (long long pn = 0; pn < panelsN; pn++) {
    for (long long pm = 0; pm < panelsM; pm++) {
      float sums[COLUMNS][ROWS];
      multiplyPanels(sums, left + pm * ROWS * k, right + pn * COLUMNS * k, k);
      for (long long column = pn * COLUMNS; column < n && column < (pn + 1) * COLUMNS; column++) {
        for (long long row = pm * ROWS; row < m && row < (pm + 1) * ROWS; row++) {
          const float offset = bias ? get(bias, (int)biasType, row) : 0.0f;
          put(d.at, (int)d.type, column * d.ld + row, sums[column % COLUMNS][row % ROWS] + offset);
        }
      }
    }
  }
  free(left);
  free(right);
  return 0;
}
