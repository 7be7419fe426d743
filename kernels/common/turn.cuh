// How a kernel begins.
//
// A launch may start before the one before it has ended, so that its blocks are in place by then.
// What surprises: takeTurn comes first in every kernel, before any way out; else a launch that had
// nothing to do would let the next one start while the one before it is still writing.
#pragma once

#include "common/ptx.cuh"

// Lets the launch behind take the places that this one leaves free, and waits for the one before.
__device__ inline void takeTurn() {
  griddep_launch();
  griddep_wait();
}
