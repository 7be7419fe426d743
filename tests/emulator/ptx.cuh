// kernels/common/ptx.cuh in plain C++: the same functions with the same layouts, for the emulator.
//
// mma and ldmatrix meet the whole warp; the last lane to arrive computes for all. Sums of mma are float in
// the order of k; those of a tensor core keep fewer bits.
#pragma once

inline unsigned short cvt_rn_bf16(float x) {
  const unsigned bits = __float_as_uint(x);
  if (x != x) return 0x7fff;
  return (unsigned short)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

namespace emulator {

struct Product {
  float* d;
  const unsigned *a, *b;
};

// Element `half` of a register, as float.
inline float half(unsigned pair, int half) {
  return __uint_as_float((pair >> 16 * half & 0xffff) << 16);
}

inline Product& productOf(void* const* lanes, int lane) {
  return *static_cast<Product*>(lanes[lane]);
}

inline void resolveProduct(void* const* lanes, unsigned) {
  float a[16][16], b[16][8];
  for (int lane = 0; lane < LANES; lane++) {
    const int g = lane / 4, t = lane % 4;
    const Product& own = productOf(lanes, lane);
    for (int i = 0; i < 2; i++) {
      a[g][2 * t + i] = half(own.a[0], i);
      a[g + 8][2 * t + i] = half(own.a[1], i);
      a[g][2 * t + 8 + i] = half(own.a[2], i);
      a[g + 8][2 * t + 8 + i] = half(own.a[3], i);
      b[2 * t + i][g] = half(own.b[0], i);
      b[2 * t + 8 + i][g] = half(own.b[1], i);
    }
  }
  for (int lane = 0; lane < LANES; lane++) {
    float* d = productOf(lanes, lane).d;
    for (int i = 0; i < 4; i++) {
      const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
      for (int k = 0; k < 16; k++) d[i] += a[row][k] * b[k][column];
    }
  }
}

struct Matrices {
  unsigned* r;
  const unsigned char* row;
};

template <bool transposed>
inline void resolveMatrices(void* const* lanes, unsigned) {
  for (int lane = 0; lane < LANES; lane++) {
    for (int matrix = 0; matrix < 4; matrix++) {
      unsigned short pair[2];
      for (int i = 0; i < 2; i++) {
        const int g = lane / 4, t = lane % 4 * 2 + i;
        const int row = transposed ? t : g, column = transposed ? g : t;
        const auto* from = static_cast<const Matrices*>(lanes[8 * matrix + row])->row;
        memcpy(&pair[i], from + 2 * column, 2);
      }
      static_cast<Matrices*>(lanes[lane])->r[matrix] = pair[0] | (unsigned)pair[1] << 16;
    }
  }
}

// Every lane has to come: one that has returned is missed.
inline void wholeWarp(const char* name) {
  const unsigned returned = current->warp->returned;
  if (returned) fail("%s without lanes %08x of its warp", name, returned);
}

template <bool transposed>
inline void ldmatrix(const char* name, unsigned* r, const void* shared) {
  wholeWarp(name);
  const auto* row = static_cast<const unsigned char*>(shared);
  if ((size_t)row % 16) fail("%s from an address that is not 16-byte aligned", name);
  Matrices record = {r, row};
  meet(name, ~0u, resolveMatrices<transposed>, &record);
}

}  // namespace emulator

inline void mma_m16n8k16_bf16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  emulator::wholeWarp("mma");
  emulator::Product record = {d, a, b};
  emulator::meet("mma", ~0u, emulator::resolveProduct, &record);
}

inline void ldmatrix_x4(unsigned (&r)[4], const void* shared) {
  emulator::ldmatrix<false>("ldmatrix_x4", r, shared);
}

inline void ldmatrix_x4_trans(unsigned (&r)[4], const void* shared) {
  emulator::ldmatrix<true>("ldmatrix_x4_trans", r, shared);
}
