// Gradient of embedding: the rows of dy that belong to one id are added to the row of that id.
//
// in   dy [tokens, C]; ids [unique] i32, each once; offsets [unique + 1] i32 into order; order
//      [tokens] i32: the tokens of each id, in text order
// out  dtable [V, C] f32, added to
// reference: scatter_add in core/graph/primitives.ts; added in text order, so always the same.
// Not yet run on a GPU. The host sorts the tokens: it has their ids anyway.
#include "common/types.cuh"

extern "C" __global__ void __launch_bounds__(128, 8)
    embedding_backward(float* __restrict__ dtable, const Element* __restrict__ dy,
                       const int* __restrict__ ids, const int* __restrict__ offsets,
                       const int* __restrict__ order, int unique, int C) {
  const int index = blockIdx.x;
  if (index >= unique) return;
  float* row = dtable + (long long)ids[index] * C;  // (C)
  for (int c = threadIdx.x; c < C; c += blockDim.x) {
    float sum = 0.0f;
    for (int i = offsets[index]; i < offsets[index + 1]; i++) {
      sum += widen(dy[(long long)order[i] * C + c]);
    }
    row[c] += sum;
  }
}
