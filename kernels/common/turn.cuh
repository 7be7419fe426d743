// How a kernel begins.
//
// A launch may start before the one before it has ended, so that its blocks are in place by then.
// TakeTurn comes first in every kernel, before any way out; else a launch that had nothing to do
// would let the next one start while the one before it is still writing.
#pragma once

#include "common/ptx.cuh"

// Lets the launch behind take the places that this one leaves free, does what needs nothing of
// earlier launches, and waits for the one before.
template <class Ahead>
__device__ inline void takeTurn(Ahead ahead) {
  griddep_launch();
  ahead();
  griddep_wait();
}

__device__ inline void takeTurn() {
  takeTurn([] {});
}

// Fetches the beginnings of rows into the second-level cache, by all threads of a block: as much as
// memory gives in the time between two launches, and no more, or the blocks of a device would drive
// each other's out again. Not a read: what an earlier launch still writes there is seen later.
__device__ inline void fetchRows(const void* rows, int count, long long rowBytes) {
  constexpr int LINE = 128, LINES = 16;
  for (int i = threadIdx.x; i < count * LINES; i += blockDim.x) {
    const long long at = i % LINES * LINE;
    if (at < rowBytes) prefetch_l2(static_cast<const char*>(rows) + i / LINES * rowBytes + at);
  }
}
