// The words of CUDA C++ in C++17, as far as kernels use them; fibers.hpp has the threads.
//
// Comes before the text of a kernel file. Only what the kernels use is here; a word that is missing is a
// compile error.
#pragma once
#include <math.h>

#include <utility>

#include "emulator/fibers.hpp"

#define __global__
#define __device__
#define __host__
#define __shared__ static __attribute__((section("shared")))
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(...)

template <class To, class From>
inline To emulatedBits(From from) {
  static_assert(sizeof(To) == sizeof(From), "bits are kept");
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}
inline float __int_as_float(int x) { return emulatedBits<float>(x); }
inline float __uint_as_float(unsigned x) { return emulatedBits<float>(x); }
inline unsigned __float_as_uint(float x) { return emulatedBits<unsigned>(x); }

template <class T>
inline T min(T a, T b) { return b < a ? b : a; }
template <class T>
inline T max(T a, T b) { return a < b ? b : a; }

inline void __syncthreads() { emulator::barrier(); }

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

}  // namespace emulator

template <class T>
inline T __shfl_xor_sync(unsigned mask, T value, int bits) {
  return emulator::shuffle("__shfl_xor_sync", mask, value, emulator::current->lane ^ bits);
}

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
