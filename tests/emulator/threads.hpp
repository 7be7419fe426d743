// A block and its threads as data, and how to say what went wrong in it.
#pragma once
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "emulator/context.hpp"

struct uint3 {
  unsigned x, y, z;
};

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

// All __shared__ variables of the program lie in one section, so that they can be poisoned.
extern "C" __attribute__((weak)) unsigned char __start_shared[];
extern "C" __attribute__((weak)) unsigned char __stop_shared[];

namespace emulator {

constexpr int LANES = 32;

struct Warp;

struct Thread {
  Context context;
  uint3 index;
  int number, lane;
  Warp* warp;
  bool returned;
};

// Gives every lane of `here` its result; lanes[i] is the record of lane i.
typedef void (*Resolve)(void* const* lanes, unsigned here);

struct Meeting {
  unsigned mask, arrived;
  Resolve resolve;
  const char* name;
};

struct Warp {
  unsigned returned;  // lanes that are gone, or that the block never had
  int meetings;
  Meeting meeting[LANES];
  void* record[LANES];
};

// Lanes of a warp that may continue.
struct Batch {
  int base;
  unsigned lanes;
};

constexpr int MAX_BATCHES = MAX_THREADS;  // no thread is in two of them

struct Block {
  void (*kernel)(void**);
  void** parameters;
  int size, started, finished, waiting;  // waiting: at the barrier
  uint3 next;                            // index of the thread that starts next
  Batch ready[MAX_BATCHES];
  unsigned firstReady, endReady;
  int freeStacks[MAX_THREADS], freeCount, newStack;
  bool failed;
  Context scheduler;
};

Machine* machine;
const char* kernelName;
Thread threads[MAX_THREADS];
Thread* current;
Warp warps[MAX_THREADS / LANES];
Block block;

// Words for the one who reads the test, in front of them where it happened.
__attribute__((format(printf, 1, 2))) inline void reportHere(const char* format, ...) {
  char* const text = machine->message;
  const int most = sizeof machine->message;
  const int at = snprintf(text, most, "kernel %s, block (%u, %u, %u)", kernelName, blockIdx.x,
                          blockIdx.y, blockIdx.z);
  va_list list;
  va_start(list, format);
  vsnprintf(text + at, most - at, format, list);
  va_end(list);
  block.failed = true;
}

// Ends the launch; called by a thread.
__attribute__((format(printf, 1, 2), noreturn)) inline void fail(const char* format, ...) {
  char text[512];
  va_list list;
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  reportHere(", thread (%u, %u, %u): %s", threadIdx.x, threadIdx.y, threadIdx.z, text);
  switchContext(current->context, block.scheduler);
  __builtin_unreachable();
}

}  // namespace emulator
