// Instructions that C++ has no words for, one function each, named after the instruction. All
// inline PTX is here, so that a test can put plain C++ in its place.
//
// mma and ldmatrix are of a whole warp: every lane calls them, and each holds a part of every
// matrix, laid out as the PTX ISA has it. With g = lane / 4 and t = lane % 4, where a register has
// two neighbouring elements, the lower first:
//
//   A 16 × 16   a[0] (g, 2t)  a[1] (g + 8, 2t)  a[2] (g, 2t + 8)  a[3] (g + 8, 2t + 8)
//   B 16 × 8    b[0] (2t, g)  b[1] (2t + 8, g)            neighbours are rows
//   D 16 × 8    d[0], d[1] (g, 2t)  d[2], d[3] (g + 8, 2t)
//
// ldmatrix reads 8 × 8 matrices of 16-bit elements: lanes 8i … 8i + 7 give the addresses of the
// rows of matrix i, 16 bytes each, and r[i] is its elements (g, 2t), transposed (2t, g). A copy of
// cp_async_16 may be read only after cp_async_wait and a barrier.
#pragma once

// Nearest bfloat16, ties to even.
__device__ inline unsigned short cvt_rn_bf16(float x) {
  unsigned short bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}

// The 32-bit address of shared memory within its window.
__device__ inline unsigned cvta_to_shared(const void* shared) {
  unsigned long long address;
  asm("cvta.to.shared.u64 %0, %1;" : "=l"(address) : "l"(shared));
  return (unsigned)address;
}

// The dynamic shared memory of the block, as much as the launch asked for.
__device__ inline unsigned char* dynamicShared() {
  extern __shared__ __align__(1024) unsigned char dynamicSharedBytes[];
  return dynamicSharedBytes;
}

// D += A B in float.
__device__ inline void mma_m16n8k16_bf16(float (&d)[4], const unsigned (&a)[4],
                                         const unsigned (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ inline void ldmatrix_x4(unsigned (&r)[4], const void* shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(cvta_to_shared(shared))
               : "memory");
}

__device__ inline void ldmatrix_x4_trans(unsigned (&r)[4], const void* shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(cvta_to_shared(shared))
               : "memory");
}

// Lanes 0 … 15 give the addresses.
__device__ inline void ldmatrix_x2(unsigned (&r)[2], const void* shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(cvta_to_shared(shared))
               : "memory");
}

__device__ inline void ldmatrix_x2_trans(unsigned (&r)[2], const void* shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(cvta_to_shared(shared))
               : "memory");
}

// 16 bytes that are read once, past the first-level cache, so that they drive nothing out of it;
// zeros where there is nothing to read. The address is 16-byte aligned.
__device__ inline void ld_nc_no_allocate_16(unsigned (&r)[4], const void* global, bool there) {
  r[0] = r[1] = r[2] = r[3] = 0;
  asm volatile(
      "{\n.reg .pred there;\nsetp.ne.s32 there, %5, 0;\n"
      "@there ld.global.nc.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];\n}"
      : "+r"(r[0]), "+r"(r[1]), "+r"(r[2]), "+r"(r[3])
      : "l"(global), "r"((int)there));
}

// 16 bytes into shared memory behind the thread's back; zeros where there is nothing to copy, and
// then nothing is read. Both addresses are 16-byte aligned.
__device__ inline void cp_async_16(void* shared, const void* global, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(cvta_to_shared(shared)), "l"(global), "r"(there ? 16 : 0)
               : "memory");
}

// Ends a group: all copies of this thread since the last one.
__device__ inline void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits for all groups of this thread but the newest N.
template <int N>
__device__ inline void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// Waits for the launch before, where this one was allowed to start early. That one has waited for
// those before it, so after this everything that was launched earlier is done.
__device__ inline void griddep_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Lets the launch behind start early, as soon as all blocks of this one have come here or ended.
__device__ inline void griddep_launch() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Asks for a line of the second-level cache, and goes on.
__device__ inline void prefetch_l2(const void* global) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(global));
}
