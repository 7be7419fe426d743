// Tiles of bfloat16 in shared memory as operands of mma_m16n8k16_bf16.
//
// The rows of a tile lie spanOf(D) elements apart: D and 8 more. For D a multiple of 16 that is an
// odd number of 16-byte pieces, so that the eight rows which ldmatrix reads at a time are in
// different banks. Operands are of 16 × 16: the left one whole, the right one for two products of
// 16 × 8 side by side.
#pragma once

#include "common/ptx.cuh"

typedef unsigned short Half;  // the bits of a bfloat16

__host__ __device__ constexpr int spanOf(int D) { return D + 8; }

// A = the 16 rows and columns from tile on
template <int SPAN>
__device__ inline void leftOperand(unsigned (&a)[4], const Half* tile) {
  const int lane = threadIdx.x % 32;
  ldmatrix_x4(a, tile + lane % 16 * SPAN + lane / 16 * 8);
}

// B = the 16 rows and columns from tile on
template <int SPAN>
__device__ inline void rightOperand(unsigned (&b)[4], const Half* tile) {
  const int lane = threadIdx.x % 32;
  ldmatrix_x4_trans(b, tile + lane % 16 * SPAN + lane / 16 * 8);
}

// B = the transpose of the 16 rows and columns from tile on
template <int SPAN>
__device__ inline void rightTransposed(unsigned (&b)[4], const Half* tile) {
  const int lane = threadIdx.x % 32;
  ldmatrix_x4(b, tile + (lane % 8 + lane / 16 * 8) * SPAN + lane / 8 % 2 * 8);
}

// d[0] += A B for the left 8 columns of B, d[1] for the right ones
__device__ inline void multiply(float (*d)[4], const unsigned (&a)[4], const unsigned (&b)[4]) {
  const unsigned left[2] = {b[0], b[1]}, right[2] = {b[2], b[3]};
  mma_m16n8k16_bf16(d[0], a, left);
  mma_m16n8k16_bf16(d[1], a, right);
}

__device__ inline unsigned packHalves(float low, float high) {
  return cvt_rn_bf16(low) | (unsigned)cvt_rn_bf16(high) << 16;
}

// Two neighbouring results of 16 × 8 as the left operand of the next product.
__device__ inline void asLeft(unsigned (&a)[4], const float (*d)[4]) {
  a[0] = packHalves(d[0][0], d[0][1]), a[1] = packHalves(d[0][2], d[0][3]);
  a[2] = packHalves(d[1][0], d[1][1]), a[3] = packHalves(d[1][2], d[1][3]);
}

struct alignas(16) Piece {
  Half v[8];
};

// Loads rows begin … of D elements by the whole block, zeros from row `end` on; offsetOf(row) is
// the element at which a row begins.
template <int D, int COUNT, int THREADS, class OffsetOf>
__device__ inline void loadRows(Half* tile, const Half* rows, int begin, int end,
                                OffsetOf offsetOf) {
  constexpr int PIECES = D / 8;
#pragma unroll 2  // no more, or their addresses take the registers
  for (int i = threadIdx.x; i < COUNT * PIECES; i += THREADS) {
    const int row = begin + i / PIECES, at = i % PIECES * 8;
    Piece piece = {};
    if (row < end) piece = *reinterpret_cast<const Piece*>(rows + offsetOf(row) + at);
    *reinterpret_cast<Piece*>(tile + i / PIECES * spanOf(D) + at) = piece;
  }
}

// A of every warp = 16 of the rows begin … and all their columns, by way of a tile for COUNT rows.
template <int D, int COUNT, int THREADS, class OffsetOf>
__device__ inline void loadOperands(unsigned (&a)[D / 16][4], Half* tile, const Half* rows,
                                    int begin, int end, OffsetOf offsetOf) {
  __syncthreads();
  loadRows<D, COUNT, THREADS>(tile, rows, begin, end, offsetOf);
  __syncthreads();
  const Half* own = tile + threadIdx.x / 32 * 16 * spanOf(D);
#pragma unroll
  for (int d = 0; d < D / 16; d++) leftOperand<spanOf(D)>(a[d], own + d * 16);
}
