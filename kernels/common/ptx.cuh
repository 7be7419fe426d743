// Instructions without a C++ counterpart, one function each, named after the instruction. All
// inline PTX is here, so that the emulator can put plain C++ in its place. Nothing is newer than
// sm_80.
//
// mma and ldmatrix are of a whole warp: every lane calls them, and each holds a part of every
// matrix, laid out as the PTX ISA has it. With g = lane / 4 and t = lane % 4, where a register has
// two neighbouring elements, the lower first:
//
//   A 16 × 16   a[0] (g, 2t)  a[1] (g + 8, 2t)  a[2] (g, 2t + 8)  a[3] (g + 8, 2t + 8)
//   B 16 × 8    b[0] (2t, g)  b[1] (2t + 8, g)            neighbours are rows
//   D 16 × 8    d[0], d[1] (g, 2t)  d[2], d[3] (g + 8, 2t)
//
// ldmatrix reads four 8 × 8 matrices of 16-bit elements: lanes 8i … 8i + 7 give the addresses of
// the rows of matrix i, 16 bytes each, and r[i] is its elements (g, 2t), transposed (2t, g).
#pragma once

// Nearest bfloat16, ties to even.
__device__ inline unsigned short cvt_rn_bf16(float x) {
  unsigned short bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}

// The 32-bit address of shared memory within its window.
__device__ inline unsigned cvta_to_shared(const void* shared) {
  unsigned long long address;
  asm("cvta.to.shared.u64 %0, %1;" : "=l"(address) : "l"(shared));
  return (unsigned)address;
}

// D += A B in float.
__device__ inline void mma_m16n8k16_bf16(float (&d)[4], const unsigned (&a)[4],
                                         const unsigned (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ inline void ldmatrix_x4(unsigned (&r)[4], const void* shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(cvta_to_shared(shared))
               : "memory");
}

__device__ inline void ldmatrix_x4_trans(unsigned (&r)[4], const void* shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(cvta_to_shared(shared))
               : "memory");
}
