// What the kernels of linear layers share: several layers in one launch, and what results become.
//
// WIDE=1 makes Result a float, WIDE=0 an Element.
#pragma once

#include "common/types.cuh"

#if WIDE
typedef float Result;
__device__ inline Result result(float x) { return x; }
#else
typedef Element Result;
__device__ inline Result result(float x) { return narrow(x); }
#endif

// Where a block is among up to three layers that read the same x: which one, its columns, and the
// number of the block in it. The blocks of the layers, of `span` columns each, follow each other.
struct Place {
  bool first, second;
  int N, block;

  template <class T>
  __device__ T pick(T ofFirst, T ofSecond, T ofThird) const {
    return first ? ofFirst : second ? ofSecond : ofThird;
  }
};

__device__ inline Place placeOf(int N0, int N1, int N2, int span) {
  const int blocks0 = (N0 + span - 1) / span, blocks1 = (N1 + span - 1) / span;
  Place place;
  place.first = blockIdx.x < blocks0;
  place.second = !place.first && blockIdx.x < blocks0 + blocks1;
  place.block = blockIdx.x - place.pick(0, blocks0, blocks0 + blocks1);
  place.N = place.pick(N0, N1, N2);
  return place;
}

// Fetches what a block will read first of its rows of a weight [N, K], of which it has `count`.
__device__ inline void fetchWeights(const Element* weight, int first, int count, int N, int K) {
  fetchRows(weight + (long long)first * K, min(count, N - first), (long long)K * sizeof(Element));
}

// silu(gate) · up of what a separate kernel would have read back.
__device__ inline Element gated(float gate, float up) {
  const float g = widen(narrow(gate)), u = widen(narrow(up));
  return narrow(g * sigmoid(g) * u);
}
