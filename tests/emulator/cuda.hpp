// The words of CUDA C++ in C++17, as far as kernels use them; fibers.hpp has the threads.
//
// Comes before the text of a kernel file. Left out: what kernels here do not use (textures,
// launches from kernels, formats of a byte) and what one OS thread cannot show (clusters, waiting
// for another block). Functions that only approximate on a device are exact here.
#pragma once
#include <math.h>

#include <utility>

#include "emulator/fibers.hpp"

#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __shared__ static __attribute__((section("shared")))
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(...)
#define __grid_constant__
#define __cluster_dims__(...)

#define EMULATED_VECTOR2(T, name, bytes) \
  struct alignas(bytes) name {           \
    T x, y;                              \
  };                                     \
  inline name make_##name(T x, T y) { return {x, y}; }
#define EMULATED_VECTOR4(T, name, bytes) \
  struct alignas(bytes) name {           \
    T x, y, z, w;                        \
  };                                     \
  inline name make_##name(T x, T y, T z, T w) { return {x, y, z, w}; }
EMULATED_VECTOR2(float, float2, 8)
EMULATED_VECTOR2(int, int2, 8)
EMULATED_VECTOR2(unsigned, uint2, 8)
EMULATED_VECTOR4(float, float4, 16)
EMULATED_VECTOR4(int, int4, 16)
EMULATED_VECTOR4(unsigned, uint4, 16)
EMULATED_VECTOR4(unsigned short, ushort4, 8)

template <class To, class From>
inline To emulatedBits(From from) {
  static_assert(sizeof(To) == sizeof(From), "bits are kept");
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}
inline float __int_as_float(int x) { return emulatedBits<float>(x); }
inline float __uint_as_float(unsigned x) { return emulatedBits<float>(x); }
inline int __float_as_int(float x) { return emulatedBits<int>(x); }
inline unsigned __float_as_uint(float x) { return emulatedBits<unsigned>(x); }

// Fast versions are exact here: tests of kernels that use them need the tolerance of a GPU.
#define __expf(x) expf(x)
#define __exp2f(x) exp2f(x)
#define __logf(x) logf(x)
#define __log2f(x) log2f(x)
#define __fdividef(x, y) ((x) / (y))
#define __frcp_rn(x) (1.0f / (x))
#define __fsqrt_rn(x) sqrtf(x)
#define __fmaf_rn(x, y, z) fmaf(x, y, z)
#define __fadd_rn(x, y) ((x) + (y))
#define __fmul_rn(x, y) ((x) * (y))
#define __float2int_rn(x) ((int)rintf(x))
#define __float2int_rd(x) ((int)floorf(x))
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }

#define EMULATED_MIN_MAX(T)                              \
  inline T min(T a, T b) { return b < a ? b : a; }       \
  inline T max(T a, T b) { return a < b ? b : a; }
EMULATED_MIN_MAX(int)
EMULATED_MIN_MAX(unsigned)
EMULATED_MIN_MAX(long long)
EMULATED_MIN_MAX(unsigned long long)
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }

template <class T>
inline T __ldg(const T* p) { return *p; }
template <class T>
inline T __ldcs(const T* p) { return *p; }
template <class T>
inline T __ldcg(const T* p) { return *p; }
template <class T>
inline void __stcs(T* p, T value) { *p = value; }
template <class T>
inline void __stcg(T* p, T value) { *p = value; }

template <class T>
inline T atomicAdd(T* p, T value) {
  const T before = *p;
  *p = before + value;
  return before;
}
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}
[[noreturn]] inline void __trap() { emulator::fail("__trap"); }

inline void __syncthreads() { emulator::barrier(); }
inline void __syncwarp(unsigned mask = 0xffffffffu) {
  emulator::meet("__syncwarp", mask, [](void* const*, unsigned) {}, nullptr);
}

namespace emulator {

template <class T>
struct Shuffle {
  T value, result;
  int source;  // a lane
};

// What comes from a lane that is not there is undefined: poison.
template <class T>
inline void resolveShuffle(void* const* lanes, unsigned here) {
  for (unsigned rest = here; rest; rest &= rest - 1) {
    auto* own = static_cast<Shuffle<T>*>(lanes[__builtin_ctz(rest)]);
    if (here >> own->source & 1) own->result = static_cast<Shuffle<T>*>(lanes[own->source])->value;
    else memset(&own->result, POISON, sizeof own->result);
  }
}

template <class T>
inline T shuffle(const char* name, unsigned mask, T value, int source) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "registers are shuffled");
  Shuffle<T> record = {value, value, source};
  meet(name, mask, resolveShuffle<T>, &record);
  return record.result;
}

template <class T>
struct Reduction {
  T value, result;
};

template <class T, T (*combine)(T, T)>
inline void resolveReduction(void* const* lanes, unsigned here) {
  T all = static_cast<Reduction<T>*>(lanes[__builtin_ctz(here)])->value;
  for (unsigned rest = here & (here - 1); rest; rest &= rest - 1) {
    all = combine(all, static_cast<Reduction<T>*>(lanes[__builtin_ctz(rest)])->value);
  }
  for (unsigned rest = here; rest; rest &= rest - 1) {
    static_cast<Reduction<T>*>(lanes[__builtin_ctz(rest)])->result = all;
  }
}

template <class T, T (*combine)(T, T)>
inline T reduce(const char* name, unsigned mask, T value) {
  Reduction<T> record = {value, value};
  meet(name, mask, resolveReduction<T, combine>, &record);
  return record.result;
}

inline int laneOf() { return current->lane; }
template <class T>
inline T bitAnd(T a, T b) { return a & b; }
template <class T>
inline T bitOr(T a, T b) { return a | b; }
template <class T>
inline T bitXor(T a, T b) { return a ^ b; }
template <class T>
inline T sum(T a, T b) { return a + b; }

}  // namespace emulator

// A source outside the segment of `width` lanes means the own value.
template <class T>
inline T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  const int begin = emulator::laneOf() & ~(width - 1);
  return emulator::shuffle("__shfl_sync", mask, value, begin + (source & (width - 1)));
}
template <class T>
inline T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32) {
  const int lane = emulator::laneOf(), source = lane ^ bits;
  const bool inside = source < (lane & ~(width - 1)) + width;
  return emulator::shuffle("__shfl_xor_sync", mask, value, inside ? source : lane);
}
template <class T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const int lane = emulator::laneOf(), source = lane + (int)delta;
  const bool inside = source < (lane & ~(width - 1)) + width;
  return emulator::shuffle("__shfl_down_sync", mask, value, inside ? source : lane);
}
template <class T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const int lane = emulator::laneOf(), source = lane - (int)delta;
  const bool inside = source >= (lane & ~(width - 1));
  return emulator::shuffle("__shfl_up_sync", mask, value, inside ? source : lane);
}

inline unsigned __ballot_sync(unsigned mask, int predicate) {
  using emulator::bitOr;
  const unsigned own = predicate ? 1u << emulator::laneOf() : 0;
  return emulator::reduce<unsigned, bitOr<unsigned>>("__ballot_sync", mask, own);
}
inline int __any_sync(unsigned mask, int predicate) {
  return emulator::reduce<int, emulator::bitOr<int>>("__any_sync", mask, predicate != 0);
}
inline int __all_sync(unsigned mask, int predicate) {
  return emulator::reduce<int, emulator::bitAnd<int>>("__all_sync", mask, predicate != 0);
}
#define EMULATED_REDUCE(T, name, combine)                       \
  inline T __reduce_##name##_sync(unsigned mask, T value) {     \
    return emulator::reduce<T, combine>("__reduce_" #name "_sync", mask, value); \
  }
EMULATED_REDUCE(int, add, emulator::sum<int>)
EMULATED_REDUCE(unsigned, add, emulator::sum<unsigned>)
EMULATED_REDUCE(int, min, min)
EMULATED_REDUCE(unsigned, min, min)
EMULATED_REDUCE(int, max, max)
EMULATED_REDUCE(unsigned, max, max)
EMULATED_REDUCE(unsigned, and, emulator::bitAnd<unsigned>)
EMULATED_REDUCE(unsigned, or, emulator::bitOr<unsigned>)
EMULATED_REDUCE(unsigned, xor, emulator::bitXor<unsigned>)

namespace emulator {

// A kernel as something that takes the parameter array, deduced from its signature.
template <auto kernel>
struct Trampoline;

template <class... A, void (*kernel)(A...)>
struct Trampoline<kernel> {
  static constexpr int count = sizeof...(A);
  // Bytes of each parameter, negative for addresses.
  static constexpr int sizes[] = {(std::is_pointer_v<A> ? -1 : 1) * (int)sizeof(A)..., 0};

  static void call(void** parameters) { spread(parameters, std::make_index_sequence<count>()); }

  template <size_t... I>
  static void spread(void** parameters, std::index_sequence<I...>) {
    kernel(*static_cast<A*>(parameters[I])...);
  }
};

struct Kernel {
  const char* name;
  void (*call)(void**);
  int count;
  const int* sizes;
  int maxThreads;
};

// The first argument of __launch_bounds__.
constexpr int boundsOf(int threads, ...) { return threads; }

}  // namespace emulator

#define EMULATED_KERNEL(name, ...)                                             \
  {#name, emulator::Trampoline<name>::call, emulator::Trampoline<name>::count, \
   emulator::Trampoline<name>::sizes, emulator::boundsOf(__VA_ARGS__)},
