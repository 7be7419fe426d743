// Sums and maxima over a warp and over a block, always in the same order: equal inputs give equal
// bits.
//
// Blocks have one dimension and whole warps, 32 at most. Every thread gets the result.
#pragma once

constexpr unsigned ALL = 0xffffffffu;

__device__ inline float warpSum(float x) {
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

// scratch holds one float per warp and may be used again right after.
__device__ inline float blockSum(float x, float* scratch) {
  const float own = warpSum(x);
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = own;
  __syncthreads();
  float total = 0.0f;
  for (int warp = 0; warp < blockDim.x / 32; warp++) total += scratch[warp];
  __syncthreads();
  return total;
}

__device__ inline float blockMax(float x, float* scratch) {
  const float own = warpMax(x);
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = own;
  __syncthreads();
  float peak = scratch[0];
  for (int warp = 1; warp < blockDim.x / 32; warp++) peak = fmaxf(peak, scratch[warp]);
  __syncthreads();
  return peak;
}
