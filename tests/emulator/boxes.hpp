// Maps, boxes on their way to shared memory, and the barriers that count them; see hopper.cuh.
#pragma once
#include "emulator/cuda.hpp"

struct alignas(64) TensorMap {
  unsigned magic;
  unsigned char rank, elementBytes, swizzleBytes, unused;
  unsigned char* address;
  unsigned long long size[5], stride[4];  // innermost first; bytes, from the second dimension on
  unsigned box[5];
};
static_assert(sizeof(TensorMap) == 128, "as large as that of the driver");

typedef unsigned long long Barrier;

namespace emulator {

constexpr unsigned MAP_MAGIC = 0x70616d54;
constexpr int MAX_BOXES = 64, MAX_PRODUCTS = 64;

// What a barrier consists of here, in its 64 bits.
struct Phase {
  unsigned long long number : 1, pending : 15, count : 15, made : 1;
  long long bytes : 32;
};

struct BoxCopy {
  TensorMap map;
  unsigned char* to;
  Barrier* barrier;
  int at[3];
};
BoxCopy boxes[MAX_BOXES];
int boxCount;

struct Wait {
  Barrier* barrier;
  int parity;
};

// The place of a byte of shared memory under the swizzle of 128 bytes, which exchanges the pieces
// of 16 bytes within a row by the last bits of its number.
inline size_t swizzle(size_t byte) { return byte ^ (byte >> 7 & 7) << 4; }

inline size_t dynamicOffset(const char* name, const void* shared) {
  const size_t byte = static_cast<const unsigned char*>(shared) - dynamicSharedMemory;
  if (byte >= SHARED_BYTES) fail("%s of what is not in dynamic shared memory", name);
  return byte;
}

inline Phase phaseOf(const char* name, const Barrier* barrier) {
  const Phase phase = emulatedBits<Phase>(*barrier);
  if (!phase.made || !phase.count || phase.count == 0x7fff) fail("%s of no barrier", name);
  return phase;
}

inline void keep(Barrier* barrier, Phase phase) {
  if (phase.pending == 0 && phase.bytes == 0) phase.number ^= 1, phase.pending = phase.count;
  *barrier = emulatedBits<Barrier>(phase);
}

inline void arrive(const char* name, Barrier* barrier, int bytes) {
  Phase phase = phaseOf(name, barrier);
  if (phase.pending == 0) fail("%s more often than the barrier expects", name);
  phase.pending--, phase.bytes += bytes;
  keep(barrier, phase);
}

inline void copyBox(const BoxCopy& copy) {
  const TensorMap& map = copy.map;
  const size_t row = map.box[0] * map.elementBytes;
  size_t to = copy.to - dynamicSharedMemory;
  for (unsigned z = 0; z < map.box[2]; z++) {
    for (unsigned y = 0; y < map.box[1]; y++) {
      for (size_t byte = 0; byte < row; byte += map.elementBytes, to += map.elementBytes) {
        const long long at[] = {copy.at[0] + (long long)byte / map.elementBytes,
                                copy.at[1] + (long long)y, copy.at[2] + (long long)z};
        bool inside = true;
        for (int i = 0; i < 3; i++) inside &= 0 <= at[i] && at[i] < (long long)map.size[i];
        unsigned char* target = dynamicSharedMemory + (map.swizzleBytes ? swizzle(to) : to);
        const unsigned char* from =
            map.address + at[0] * map.elementBytes + at[1] * map.stride[0] + at[2] * map.stride[1];
        if (inside) memcpy(target, from, map.elementBytes);
        else memset(target, 0, map.elementBytes);
      }
    }
  }
  Phase phase = phaseOf("cp_async_bulk_tensor_3d", copy.barrier);
  phase.bytes -= to - (copy.to - dynamicSharedMemory);
  keep(copy.barrier, phase);
}

// Brings what is on its way to a barrier and tells whether the phase has ended.
inline bool phaseEnded(void* about) {
  const Wait wait = *static_cast<Wait*>(about);
  int left = 0;
  const int count = boxCount;
  for (int i = 0; i < count; i++) {
    if (boxes[i].barrier == wait.barrier) copyBox(boxes[i]);
    else boxes[left++] = boxes[i];
  }
  boxCount = left;
  return (int)emulatedBits<Phase>(*wait.barrier).number != wait.parity;
}

struct NamedBarrier {
  int arrived, count;
  unsigned times;
};
NamedBarrier named[16];

struct Crossing {
  int id;
  unsigned times;
};

inline bool isCrossed(void* about) {
  const Crossing crossing = *static_cast<Crossing*>(about);
  return named[crossing.id].times != crossing.times;
}

}  // namespace emulator
