// Instructions that only Hopper has (sm_90a), one function each, named after the instruction: boxes
// copied by hardware (TMA), barriers that count their bytes, and products of a warpgroup.
//
// A warpgroup is four neighbouring warps, the first one's number a multiple of four. All of its
// threads call wgmma and setmaxnreg. In wgmma, A and D are in registers: warp w of the group has
// rows 16w … 16w + 15, and within them each lane what common/ptx.cuh says of A 16 × 16 and, for
// columns 8j … 8j + 7, in d[4j] … d[4j + 3], of D 16 × 8.
//
// B is a tile in shared memory as a copy of a box of 64 columns leaves it: rows of 128 bytes, at a
// multiple of 1024 bytes, where piece c of 16 bytes of row r is in the place of piece c ^ (r % 8).
// A product reads B and its registers until it has been waited for; and what threads have written
// themselves into a tile, it sees only behind fence_proxy_async.
#pragma once

#include "common/ptx.cuh"

// A tensor in global memory and the boxes in which it is copied, as the driver encodes it.
struct alignas(64) TensorMap {
  unsigned long long opaque[16];
};

// 2ˣ, within 2⁻²² of it; zero where that is below 2⁻¹²⁶.
__device__ inline float ex2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Two bfloat16, each the nearest one, ties to even.
__device__ inline unsigned cvt_rn_bf16x2(float low, float high) {
  unsigned pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

// In shared memory: arrivals and bytes that its phase still waits for.
typedef unsigned long long Barrier;

// A barrier in its phase 0, whose phases end when `count` threads have arrived.
__device__ inline void mbarrier_init(Barrier* barrier, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
               :
               : "r"(cvta_to_shared(barrier)), "r"(count)
               : "memory");
}

// Lets copies see barriers that this thread has made.
__device__ inline void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ inline void mbarrier_arrive(Barrier* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];"
               :
               : "r"(cvta_to_shared(barrier))
               : "memory");
}

// Arrives, and makes the phase wait for that many bytes of copies as well.
__device__ inline void mbarrier_arrive_expect_tx(Barrier* barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
               :
               : "r"(cvta_to_shared(barrier)), "r"(bytes)
               : "memory");
}

// Whether a phase has ended, by the last bit of its number; waits for it as long as it is told.
__device__ inline bool mbarrier_try_wait_parity(Barrier* barrier, int parity, int nanoseconds) {
  int ended;
  asm volatile(
      "{\n.reg .pred ended;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 ended, [%1], %2, %3;\n"
      "selp.b32 %0, 1, 0, ended;\n}"
      : "=r"(ended)
      : "r"(cvta_to_shared(barrier)), "r"(parity), "r"(nanoseconds)
      : "memory");
  return ended;
}

// Ends all blocks with an error, by a store to nowhere: beside a trap, ptxas gives what follows
// setmaxnreg_inc no more registers than before.
__device__ inline void fault() {
  asm volatile("st.global.b32 [%0], %1;" ::"l"(0ull), "r"(0) : "memory");
}

// Starts to copy the box whose first element is (x, y, z), innermost first, zeros for what is
// outside the tensor; its bytes arrive at the barrier. One thread calls it.
__device__ inline void cp_async_bulk_tensor_3d(void* shared, const TensorMap& map, int x, int y,
                                               int z, Barrier* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4}], [%5];"
      :
      : "r"(cvta_to_shared(shared)), "l"(&map), "r"(x), "r"(y), "r"(z),
        "r"(cvta_to_shared(barrier))
      : "memory");
}

// Lets copies and products see what this thread has written into shared memory.
__device__ inline void fence_proxy_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// __syncthreads for `count` threads, whole warps; 0 < id < 16.
__device__ inline void bar_sync(int id, int count) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(count) : "memory");
}

// Gives up registers of a warpgroup, or takes them and waits until others have given them up.
template <int COUNT>
__device__ inline void setmaxnreg_dec() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}

template <int COUNT>
__device__ inline void setmaxnreg_inc() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

// The tile from some row and column on as an operand of wgmma: eight rows further is 1024 bytes
// further (bit 32 on, in units of 16), with the swizzle of 128 bytes (bit 62).
__device__ inline unsigned long long matrix_descriptor(const void* shared) {
  const unsigned long long from = cvta_to_shared(shared) >> 4 & 0x3fff;
  return from | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

// Before the first product, and after registers of the next one were written.
__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

// Ends a group: all products of this warp since the last one.
__device__ inline void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits for all groups of this warp but the newest N.
template <int N>
__device__ inline void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

// Keeps the compiler from moving uses of sums over the fence before or the wait behind a product.
template <int COUNT>
__device__ inline void keepInPlace(float (&d)[COUNT]) {
#pragma unroll
  for (int i = 0; i < COUNT; i++) asm volatile("" : "+f"(d[i])::"memory");
}

__device__ inline void keepInPlace(unsigned (&a)[4]) {
#pragma unroll
  for (int i = 0; i < 4; i++) asm volatile("" : "+r"(a[i])::"memory");
}

#define SUMS_8(d, i)                                                                   \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define SUMS_32(d, i) SUMS_8(d, i), SUMS_8(d, i + 8), SUMS_8(d, i + 16), SUMS_8(d, i + 24)

// D += A B, or D = A B unless `add`. A row of the tile is a column of B; if TURNED, it is a row.
template <bool TURNED>
__device__ inline void wgmma_m64n64k16_bf16(float (&d)[32], const unsigned (&a)[4],
                                            unsigned long long b, bool add) {
  asm volatile(
      "{\n.reg .pred add;\nsetp.ne.b32 add, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, %36, add, 1, 1, %38;\n}"
      : SUMS_32(d, 0)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)add), "n"(TURNED ? 1 : 0));
}

// The same for 128 rows of the tile, each a column of B.
__device__ inline void wgmma_m64n128k16_bf16(float (&d)[64], const unsigned (&a)[4],
                                             unsigned long long b, bool add) {
  asm volatile(
      "{\n.reg .pred add;\nsetp.ne.b32 add, %69, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "{%64, %65, %66, %67}, %68, add, 1, 1, 0;\n}"
      : SUMS_32(d, 0), SUMS_32(d, 32)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)add));
}
