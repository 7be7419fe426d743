// sample: the next token of each row, greedy or drawn after temperature, top-k, top-p and min-p.
//
// in   logits [N, V] f32; sampling [N, 6] f32: temperature (0 is greedy), top-k (0 keeps all),
//      top-p, min-p, and a draw from [0, 1) in two parts
// out  tokens [N] i32, −1 where a logit is NaN
// saved for backward: nothing
// reference: core/base/sampling.ts, equal but for numbers within 1e-6 of the border of two tokens.
//
// A block has one row. Tokens stand in an order, larger logits first and lower ids first among
// equal ones; what top-k and top-p keep is a prefix of it, which is found by
// bisection of the logits' bits. The draw then walks the kept tokens by id, by bisection too.
// Weights are whole multiples of 2⁻⁴⁰, so that sums are exact in any order.
//
// A border is found in 17 readings of a row from the second-level cache, an estimated 7 µs each for
// the 151,936 logits of Qwen. Bins of digits (radix select) would take three, but with 64-bit
// atomic additions to few addresses of shared memory, which are loops there (ATOMS.CAST.SPIN.64).
#include "common/reduce.cuh"
#include "common/types.cuh"

typedef unsigned long long Mass;  // of weights, in units of 2⁻⁴⁰; of tokens, when they are counted

constexpr int THREADS = 1024;
constexpr float UNIT = 1099511627776.0f;  // 2⁴⁰

// Ordered as floats are.
__device__ inline unsigned rankOf(float x) {
  const unsigned bits = __float_as_uint(x + 0.0f);  // −0 becomes 0
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

struct Row {
  const float* logits;  // (V)
  int V;
  float best, temperature, least;  // least: weight of the most likely token times min-p
  // Kept are higher ranks than this one, and of this rank ids up to the last.
  unsigned rank;
  int last;

  __device__ float weight(float x) const { return expf((x - best) / temperature); }

  __device__ Mass mass(int v) const { return (Mass)(weight(logits[v]) * UNIT); }

  __device__ Mass kept(int v) const {
    const float x = logits[v];
    const unsigned own = rankOf(x);
    const bool in = own > rank || (own == rank && v <= last);
    return in && weight(x) >= least ? mass(v) : 0;
  }
};

// Σ value(v) over begin ≤ v < end.
template <class Value>
__device__ inline Mass total(int begin, int end, Value value, Mass* scratch) {
  Mass own = 0;
  for (int v = begin + threadIdx.x; v < end; v += THREADS) own += value(v);
  return blockSum(own, scratch);
}

// The first id at which the sum of values is more than `target`, which all of them must be.
template <class Value>
__device__ inline int walk(int V, Mass target, Value value, Mass* scratch) {
  int begin = 0, end = V;
  while (end - begin > 1) {
    const int middle = (begin + end) / 2;
    const Mass own = total(begin, middle, value, scratch);
    if (own > target) end = middle;
    else target -= own, begin = middle;
  }
  return begin;
}

// Puts the border after the first tokens whose values add up to `target`, at least 1 and at most
// the sum of all. The rank at the border is the highest from which on the sum reaches the target;
// two of its bits are found at a time.
template <class Value>
__device__ inline void cut(Row& row, Mass target, Value value, Mass* scratch) {
  unsigned border = 0;
  for (int shift = 30; shift >= 0; shift -= 2) {
    Mass from[3] = {};  // Σ of ranks from border + (i + 1) 2^shift on
    for (int v = threadIdx.x; v < row.V; v += THREADS) {
      const unsigned rank = rankOf(row.logits[v]);
      const unsigned steps = rank < border ? 0 : (rank - border) >> shift;
      if (steps == 0) continue;
      const Mass own = value(v);
#pragma unroll
      for (int i = 0; i < 3; i++) from[i] += steps > i ? own : 0;
    }
    unsigned steps = 0;
#pragma unroll
    for (int i = 0; i < 3; i++) steps += blockSum(from[i], scratch) >= target;
    border += steps << shift;
  }
  const Mass before = total(0, row.V, [&](int v) -> Mass {
    return rankOf(row.logits[v]) > border ? value(v) : 0;
  }, scratch);
  // Of the rank at the border, tokens with the highest ids may be left out.
  row.rank = border;
  row.last = walk(row.V, target - before - 1, [&](int v) -> Mass {
    return rankOf(row.logits[v]) == border ? value(v) : 0;
  }, scratch);
}

// One block per processor: said outright, since the compiler else spills to fit two.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    sample(int* __restrict__ tokens, const float* __restrict__ logits,
           const float* __restrict__ sampling, int N, int V) {
  const int n = blockIdx.x;
  if (n >= N) return;
  __shared__ Mass scratch[THREADS / 32];
  __shared__ Best bests[THREADS / 32];
  const float* numbers = sampling + n * 6;
  Row row = {logits + (long long)n * V, V, 0.0f, numbers[0], 0.0f, 0, V};

  // A logit of NaN counts as the largest of all, at place −1.
  Best best = {-INFINITE, V};
  for (int v = threadIdx.x; v < V; v += THREADS) {
    const float x = row.logits[v];
    best = better(best, x == x ? Best{x, v} : Best{INFINITE, -1});
  }
  best = blockFold(best, bests, better);
  row.best = best.value;
  if (row.temperature == 0.0f || fabsf(row.best) == INFINITE) {
    if (threadIdx.x == 0) tokens[n] = best.place;
    return;
  }

  const auto kept = [&](int v) { return row.kept(v); };
  const float k = numbers[1], p = numbers[2];
  if (k > 0.0f && k < (float)V) cut(row, (Mass)k, [](int) -> Mass { return 1; }, scratch);
  if (p < 1.0f) {
    const Mass all = total(0, V, kept, scratch);
    const Mass wanted = (Mass)ceil((double)p * (double)all);
    cut(row, max(min(wanted, all), (Mass)1), [&](int v) { return row.mass(v); }, scratch);
  }
  row.least = numbers[3];
  const Mass all = total(0, V, kept, scratch);
  const double draw = (double)numbers[4] + (double)numbers[5];
  const Mass target = min((Mass)(draw * (double)all), all - 1);
  const int token = walk(V, target, kept, scratch);
  if (threadIdx.x == 0) tokens[n] = token;
}
