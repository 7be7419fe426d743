// publish: a few numbers for the host to see in its own memory, without being asked.
//
// in   values [count] i32, or anything of 4 bytes
// out  slot [1 + count] i32, in memory of the host: the values, and before them, once they are
//      there, `sequence`
// saved for backward: nothing
// reference: none, a copy.
// The one kernel whose result the host reads while the device goes on.
#include "common/turn.cuh"

extern "C" __global__ void __launch_bounds__(256)
    publish(int* slot, const int* __restrict__ values, int count, int sequence) {
  takeTurn();
  if (blockIdx.x > 0) return;
  for (int i = threadIdx.x; i < count; i += blockDim.x) slot[1 + i] = values[i];
  __threadfence_system();  // each thread for what it wrote
  __syncthreads();
  if (threadIdx.x == 0) *(volatile int*)slot = sequence;
}
