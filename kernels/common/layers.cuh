// Up to three linear layers that read the same rows, as one launch: the blocks of the layers follow
// each other, and each block has SPAN columns of one layer.
//
// F32_OUT=1 makes results float, F32_OUT=0 elements.
#pragma once

#include "common/types.cuh"

#if F32_OUT
typedef float Result;
__device__ inline Result result(float x) { return x; }
#else
typedef Element Result;
__device__ inline Result result(float x) { return fromFloat(x); }
#endif

// The layer of a block, and the first of its columns.
struct Layer {
  const Element *weight, *bias;  // the latter may be null
  Result* y;
  int N, column;
};

template <int SPAN>
__device__ inline Layer layerOf(const Layer& a, const Layer& b, const Layer& c) {
  const int blocksA = (a.N + SPAN - 1) / SPAN, blocksB = (b.N + SPAN - 1) / SPAN;
  const int block = blockIdx.x;
  Layer layer = block < blocksA ? a : block < blocksA + blocksB ? b : c;
  const int before = block < blocksA ? 0 : block < blocksA + blocksB ? blocksA : blocksA + blocksB;
  layer.column = (block - before) * SPAN;
  return layer;
}
