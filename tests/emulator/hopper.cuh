// kernels/common/hopper.cuh in plain C++: the same functions with the same layouts, for the
// emulator.
//
// Everything that runs by itself is as late as it may be. A box is poison until a thread waits for
// its barrier, and a product reads its tile when it is waited for; so a kernel that reads, releases
// or overwrites too early finds wrong numbers. A map holds what tensor_map.ts has written.
#pragma once

#include "emulator/boxes.hpp"

namespace emulator {

// One product of 16 rows, as a lane keeps it until it is waited for.
struct GroupProduct {
  float* d;
  unsigned a[4];
  unsigned long long b;
  int columns, group;
  bool rows, add;
};
struct GroupProducts {
  GroupProduct list[MAX_PRODUCTS];
  int count, group;
  bool fenced;
};
GroupProducts groupProducts[MAX_THREADS];

struct GroupWait {
  GroupProducts* own;
  int newest;
};

// Element (k, n) of a tile. Rows are 128 bytes; the descriptor says how far eight of them reach.
inline float tileElement(unsigned long long descriptor, int k, int n, bool rows) {
  const size_t from = (descriptor & 0x3fff) << 4, eight = (descriptor >> 32 & 0x3fff) << 4;
  const int row = rows ? k : n, column = rows ? n : k;
  const size_t byte = from + row / 8 * eight + row % 8 * 128 + column * 2;
  unsigned short bits;
  memcpy(&bits, dynamicSharedMemory + swizzle(byte), 2);
  return __uint_as_float((unsigned)bits << 16);
}

inline void multiply(void* const* lanes, int which) {
  const auto productOf = [&](int lane) -> GroupProduct& {
    return static_cast<GroupWait*>(lanes[lane])->own->list[which];
  };
  float a[16][16], b[16];
  for (int lane = 0; lane < LANES; lane++) {
    for (int i = 0; i < 8; i++) {
      const int row = lane / 4 + i / 2 % 2 * 8, column = lane % 4 * 2 + i % 2 + i / 4 * 8;
      a[row][column] = half(productOf(lane).a[i / 2], i % 2);
    }
  }
  const GroupProduct& all = productOf(0);
  for (int n = 0; n < all.columns; n++) {
    for (int k = 0; k < 16; k++) b[k] = tileElement(all.b, k, n, all.rows);
    for (int row = 0; row < 16; row++) {
      float sum = 0.0f;
      for (int k = 0; k < 16; k++) sum += a[row][k] * b[k];
      float& d = productOf(row % 8 * 4 + n % 8 / 2).d[n / 8 * 4 + row / 8 * 2 + n % 2];
      d = all.add ? d + sum : sum;
    }
  }
}

// All lanes have the same products; those of the groups that are waited for are computed.
inline void resolveProducts(void* const* lanes, unsigned) {
  const GroupWait& wait = *static_cast<GroupWait*>(lanes[0]);
  int ready = 0;
  while (ready < wait.own->count && wait.own->list[ready].group < wait.newest) {
    multiply(lanes, ready++);
  }
  for (int lane = 0; lane < LANES; lane++) {
    GroupProducts& own = *static_cast<GroupWait*>(lanes[lane])->own;
    for (int i = 0; i < ready; i++) {
      if (own.list[i].b != wait.own->list[i].b) fail("wgmma of other tiles in lane %d", lane);
    }
  }
  for (int lane = LANES; lane-- > 0;) {
    GroupProducts& own = *static_cast<GroupWait*>(lanes[lane])->own;
    own.count -= ready;
    memmove(own.list, own.list + ready, own.count * sizeof own.list[0]);
  }
}

inline void addProduct(float* d, const unsigned* a, unsigned long long b, int columns, bool rows,
                       bool add) {
  GroupProducts& own = groupProducts[current->number];
  if (!own.fenced) fail("wgmma without wgmma_fence before it");
  if (own.count == MAX_PRODUCTS) fail("wgmma with %d products under way", MAX_PRODUCTS);
  if (b >> 62 != 1) fail("wgmma of a tile that has another swizzle");
  own.list[own.count++] = {d, {a[0], a[1], a[2], a[3]}, b, columns, own.group, rows, add};
}

inline void endBlock() {
  if (!block.failed && boxCount) reportHere(": ended with %d copies under way", boxCount);
  for (int i = 0; i < block.size; i++) {
    GroupProducts& own = groupProducts[i];
    if (!block.failed && own.count) {
      reportHere(", thread number %d: ended with %d products under way", i, own.count);
    }
    own.count = own.group = own.fenced = 0;
  }
  boxCount = 0;
  memset(named, 0, sizeof named);
}
const bool ends = (blockEnded = endBlock, true);

}  // namespace emulator

inline float ex2_approx(float x) {
  const float y = exp2f(x);
  return y < 0x1p-126f ? 0.0f : y;
}

inline unsigned cvt_rn_bf16x2(float low, float high) {
  return cvt_rn_bf16(low) | (unsigned)cvt_rn_bf16(high) << 16;
}

inline void mbarrier_init(Barrier* barrier, int count) {
  emulator::Phase phase = {};
  phase.pending = phase.count = count, phase.made = 1;
  *barrier = emulatedBits<Barrier>(phase);
}

inline void fence_mbarrier_init() {}

inline void mbarrier_arrive(Barrier* barrier) { emulator::arrive("mbarrier_arrive", barrier, 0); }

inline void mbarrier_arrive_expect_tx(Barrier* barrier, int bytes) {
  emulator::arrive("mbarrier_arrive_expect_tx", barrier, bytes);
}

// Waits until the phase has ended, however long it is told to wait.
inline bool mbarrier_try_wait_parity(Barrier* barrier, int parity, int) {
  emulator::phaseOf("mbarrier_try_wait_parity", barrier);
  emulator::Wait wait = {barrier, parity};
  emulator::waitUntil("mbarrier_try_wait_parity", emulator::phaseEnded, &wait);
  return true;
}

inline void fault() { emulator::fail("fault"); }

inline void cp_async_bulk_tensor_3d(void* shared, const TensorMap& map, int x, int y, int z,
                                    Barrier* barrier) {
  using namespace emulator;
  const char* const name = "cp_async_bulk_tensor_3d";
  if (map.magic != MAP_MAGIC || map.rank != 3) fail("%s with no map of three dimensions", name);
  phaseOf(name, barrier);
  const size_t bytes = map.box[0] * map.box[1] * map.box[2] * map.elementBytes;
  const size_t to = dynamicOffset(name, shared);
  if (to % (map.swizzleBytes ? 1024 : 128)) fail("%s to an address that is not aligned", name);
  if (to + bytes > SHARED_BYTES) fail("%s past shared memory", name);
  if (boxCount == MAX_BOXES) fail("%s with %d copies under way", name, MAX_BOXES);
  memset(shared, POISON, bytes);
  boxes[boxCount++] = {map, static_cast<unsigned char*>(shared), barrier, {x, y, z}};
}

inline void fence_proxy_async() {}

inline void bar_sync(int id, int count) {
  using namespace emulator;
  if (id < 1 || id > 15 || count % LANES) fail("bar_sync %d of %d threads", id, count);
  NamedBarrier& own = named[id];
  if (own.arrived && own.count != count) fail("bar_sync %d of %d and %d", id, own.count, count);
  own.count = count;
  if (++own.arrived == count) {
    own.arrived = 0, own.times++;
    return;
  }
  Crossing crossing = {id, own.times};
  waitUntil("bar_sync", isCrossed, &crossing);
}

template <int COUNT>
inline void setmaxnreg_dec() {
  static_assert(COUNT >= 24 && COUNT <= 256 && COUNT % 8 == 0, "registers come in eights");
}

template <int COUNT>
inline void setmaxnreg_inc() {
  setmaxnreg_dec<COUNT>();
}

inline unsigned long long matrix_descriptor(const void* shared) {
  const unsigned long long from = emulator::dynamicOffset("matrix_descriptor", shared) >> 4;
  return from | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

inline void wgmma_fence() { emulator::groupProducts[emulator::current->number].fenced = true; }

inline void wgmma_commit() { emulator::groupProducts[emulator::current->number].group++; }

template <int N>
inline void wgmma_wait() {
  using namespace emulator;
  wholeWarp("wgmma_wait");
  // A thread that waits for the release of a tile goes first, in case the release comes too early.
  if (laneOf() == 0) waitUntil("wgmma_wait", [](void*) { return true; }, nullptr);
  GroupProducts& own = groupProducts[current->number];
  GroupWait wait = {&own, own.group - N};
  own.fenced = false;
  meet("wgmma_wait", ~0u, resolveProducts, &wait);
}

template <int COUNT>
inline void keepInPlace(float (&)[COUNT]) {}

inline void keepInPlace(unsigned (&)[4]) {}

template <bool TURNED>
inline void wgmma_m64n64k16_bf16(float (&d)[32], const unsigned (&a)[4], unsigned long long b,
                                 bool add) {
  emulator::addProduct(d, a, b, 64, TURNED, add);
}

inline void wgmma_m64n128k16_bf16(float (&d)[64], const unsigned (&a)[4], unsigned long long b,
                                  bool add) {
  emulator::addProduct(d, a, b, 128, false, add);
}
