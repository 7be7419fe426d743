// Element types and vector access, without any header of a toolkit.
//
// BF16=1 makes Element the 16 bits of a bfloat16, BF16=0 a float. All arithmetic is in float.
// Tensors begin at multiples of 16 bytes. A row of C elements is walked in packs of 16 bytes where
// C is a multiple of a pack, else element by element: packStep(C) says which, and load and store
// take that step. The unused part of a short pack is zero, never left undefined.
#pragma once

#include "common/ptx.cuh"

#if BF16
typedef unsigned short Element;

__device__ inline float toFloat(Element x) { return __uint_as_float((unsigned)x << 16); }

__device__ inline Element fromFloat(float x) { return cvt_rn_bf16(x); }
#else
typedef float Element;

__device__ inline float toFloat(Element x) { return x; }

__device__ inline Element fromFloat(float x) { return x; }
#endif

// Elements of one 16-byte access.
constexpr int WIDTH = 16 / sizeof(Element);

struct Pack {
  float v[WIDTH];
};

struct alignas(16) RawPack {
  Element v[WIDTH];
};

// WIDTH where rows of this size can be read 16 bytes at a time, else 1.
__device__ inline int packStep(int size) { return size % WIDTH == 0 ? WIDTH : 1; }

// n elements, at most WIDTH, and zeros after them; p is 16-byte aligned if n is WIDTH.
__device__ inline Pack load(const Element* p, int n) {
  Pack pack;
  if (n == WIDTH) {
    const RawPack raw = *reinterpret_cast<const RawPack*>(p);
#pragma unroll
    for (int i = 0; i < WIDTH; i++) pack.v[i] = toFloat(raw.v[i]);
  } else {
#pragma unroll
    for (int i = 0; i < WIDTH; i++) pack.v[i] = i < n ? toFloat(p[i]) : 0.0f;
  }
  return pack;
}

// The first n elements of a pack; p is 16-byte aligned if n is WIDTH.
__device__ inline void store(Element* p, const Pack& pack, int n) {
  if (n == WIDTH) {
    RawPack raw;
#pragma unroll
    for (int i = 0; i < WIDTH; i++) raw.v[i] = fromFloat(pack.v[i]);
    *reinterpret_cast<RawPack*>(p) = raw;
  } else {
#pragma unroll
    for (int i = 0; i < WIDTH; i++) {
      if (i < n) p[i] = fromFloat(pack.v[i]);
    }
  }
}

// Bits, since neither a header nor every compiler has a constant for it.
#define INFINITE __int_as_float(0x7f800000)

// σ(x) in full float accuracy.
__device__ inline float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
