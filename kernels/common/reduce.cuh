// Sums, maxima and places of maxima over a warp and over a block, always in the same order: equal
// inputs give equal bits.
//
// Blocks have one dimension and whole warps, 32 at most. Every thread gets the result. A scratch
// holds one value per warp and may be used again right after.
#pragma once

constexpr unsigned ALL = 0xffffffffu;

// A number and its place in a row.
struct Best {
  float value;
  int place;
};

// Of equal numbers the first is the best.
__device__ inline Best better(Best a, Best b) {
  return b.value > a.value || (b.value == a.value && b.place < a.place) ? b : a;
}

template <class T>
__device__ inline T shuffled(T x, int distance) {
  return __shfl_xor_sync(ALL, x, distance);
}

__device__ inline Best shuffled(Best x, int distance) {
  return {shuffled(x.value, distance), shuffled(x.place, distance)};
}

template <class T, class Join>
__device__ inline T warpFold(T x, Join join) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) x = join(x, shuffled(x, distance));
  return x;
}

template <class T, class Join>
__device__ inline T blockFold(T x, T* scratch, Join join) {
  const T own = warpFold(x, join);
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = own;
  __syncthreads();
  T all = scratch[0];
  for (int warp = 1; warp < blockDim.x / 32; warp++) all = join(all, scratch[warp]);
  __syncthreads();
  return all;
}

__device__ inline float warpSum(float x) {
  return warpFold(x, [](float a, float b) { return a + b; });
}

template <class T>
__device__ inline T blockSum(T x, T* scratch) {
  return blockFold(x, scratch, [](T a, T b) { return a + b; });
}

__device__ inline float blockMax(float x, float* scratch) {
  return blockFold(x, scratch, [](float a, float b) { return fmaxf(a, b); });
}
