// Sums, maxima and places of maxima over a warp and over a block, always in the same order: equal
// inputs give equal bits.
//
// Blocks have one dimension and whole warps, 32 at most. Every thread gets the result. A scratch
// holds one value per warp and may be used again right after.
#pragma once

constexpr unsigned ALL = 0xffffffffu;

template <class T>
__device__ inline T warpSum(T x) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) x += __shfl_xor_sync(ALL, x, distance);
  return x;
}

__device__ inline float warpMax(float x) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    x = fmaxf(x, __shfl_xor_sync(ALL, x, distance));
  }
  return x;
}

template <class T>
__device__ inline T blockSum(T x, T* scratch) {
  const T own = warpSum(x);
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = own;
  __syncthreads();
  T total = 0;
  for (int warp = 0; warp < blockDim.x / 32; warp++) total += scratch[warp];
  __syncthreads();
  return total;
}

__device__ inline float blockMax(float x, float* scratch) {
  const float own = warpMax(x);
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = own;
  __syncthreads();
  float largest = scratch[0];
  for (int warp = 1; warp < blockDim.x / 32; warp++) largest = fmaxf(largest, scratch[warp]);
  __syncthreads();
  return largest;
}

// A number and its place in a row; of equal numbers the first is the best.
struct Best {
  float value;
  int place;

  __device__ void keep(float other, int at) {
    if (other > value || (other == value && at < place)) value = other, place = at;
  }
};

__device__ inline Best blockBest(Best own, Best* scratch) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    const float value = __shfl_xor_sync(ALL, own.value, distance);
    own.keep(value, __shfl_xor_sync(ALL, own.place, distance));
  }
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = own;
  __syncthreads();
  for (int warp = 0; warp < blockDim.x / 32; warp++) {
    own.keep(scratch[warp].value, scratch[warp].place);
  }
  __syncthreads();
  return own;
}
