// What the machine library and every emulated program agree on.
#pragma once
#include <setjmp.h>
#include <stddef.h>

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace emulator {

constexpr int MAX_THREADS = 1024;
constexpr size_t STACK_BYTES = 32 * 1024;
// Five cache lines more, so that the tops of the stacks do not share the sets of a cache.
constexpr size_t STACK_STRIDE = STACK_BYTES + 320;
constexpr size_t GUARD_BYTES = 256;
// Unwritten memory, and guards: NaN as float and as bfloat16, −1 as int.
constexpr unsigned char POISON = 0xff;

struct Machine {
  char* stacks;           // one of STACK_STRIDE for each thread of a block
  sigjmp_buf** fault;     // where this OS thread continues after a memory fault, while it is not null
  char message[1024];     // what went wrong in a launch
};

}  // namespace emulator
