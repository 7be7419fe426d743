// sample: the next token of each row, greedy or drawn after temperature, top-k, top-p and min-p.
//
// in   logits [N, V] f32; sampling [N, 6] f32: temperature (0 is greedy), top-k (0 keeps all),
//      top-p, min-p, and a draw from [0, 1) in two parts
// out  tokens [N] i32, −1 where a logit is NaN
// saved for backward: nothing
// reference: core/base/sampling.ts, equal but for numbers within 1e-6 of the border of two tokens.
//
// A block has one row. Tokens stand in an order, larger logits first and lower ids first among
// equal ones; what top-k and top-p keep is the beginning of it up to some border, which is found
// digit by digit of the logits' bits (radix select). The draw then walks the kept tokens by id.
// Weights are whole multiples of 2⁻⁴⁰, so that sums are exact and atomics may add in any order.
#include "common/reduce.cuh"
#include "common/types.cuh"

typedef unsigned long long Mass;  // of weights, in units of 2⁻⁴⁰; of tokens, when they are counted

constexpr int THREADS = 1024, WARPS = THREADS / 32, BINS = 2048;
constexpr float UNIT = 1099511627776.0f;  // 2⁴⁰

struct Scratch {
  Mass bins[BINS];
  Mass parts[WARPS];
  float peaks[WARPS];
  int places[WARPS];
  Mass found, before;  // a bin, and what lies before it
};

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

  __device__ Mass mass(float x) const { return (Mass)(weight(x) * UNIT); }

  __device__ Mass kept(int v) const {
    const float x = logits[v];
    const unsigned own = rankOf(x);
    const bool in = own > rank || (own == rank && v <= last);
    return in && weight(x) >= least ? mass(x) : 0;
  }
};

__device__ inline Mass warpTotal(Mass x) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) x += __shfl_xor_sync(ALL, x, distance);
  return x;
}

// Σ value(v) over the row; every thread gets it.
template <class Value>
__device__ inline Mass rowTotal(int V, Value value, Scratch& scratch) {
  Mass own = 0;
  for (int v = threadIdx.x; v < V; v += THREADS) own += value(v);
  own = warpTotal(own);
  if (threadIdx.x % 32 == 0) scratch.parts[threadIdx.x / 32] = own;
  __syncthreads();
  Mass total = 0;
  for (int warp = 0; warp < WARPS; warp++) total += scratch.parts[warp];
  __syncthreads();
  return total;
}

// The first id at which the sum of values is more than `target`, which all of them must be: each
// round sums the parts of 32 warps and goes on within one of them.
template <class Value>
__device__ inline int walk(int V, Mass target, Value value, Scratch& scratch) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int begin = 0, end = V;
  while (end - begin > 32) {
    const int size = (end - begin + WARPS - 1) / WARPS;
    const int stop = min(begin + (warp + 1) * size, end);
    Mass own = 0;
    for (int v = begin + warp * size + lane; v < stop; v += 32) own += value(v);
    own = warpTotal(own);
    if (lane == 0) scratch.parts[warp] = own;
    __syncthreads();
    int part = 0;
    while (part < WARPS - 1 && scratch.parts[part] <= target) target -= scratch.parts[part++];
    __syncthreads();
    begin += part * size;
    end = min(begin + size, end);
  }
  for (; begin < end - 1; begin++) {
    const Mass own = value(begin);
    if (own > target) break;
    target -= own;
  }
  return begin;
}

// The bin, from the highest on, in which the sum of bins reaches `target`; by the first warp.
__device__ inline void findBin(Scratch& scratch, Mass target) {
  constexpr int SHARE = BINS / 32;
  const int lane = threadIdx.x, top = BINS - 1 - lane * SHARE;
  Mass own = 0;
  for (int i = 0; i < SHARE; i++) own += scratch.bins[top - i];
  Mass until = own;  // with those of the lanes before
  for (int distance = 1; distance < 32; distance *= 2) {
    const Mass other = __shfl_up_sync(ALL, until, distance);
    if (lane >= distance) until += other;
  }
  Mass before = until - own;
  if (before >= target || until < target) return;  // another lane's
  int bin = top;
  while (before + scratch.bins[bin] < target) before += scratch.bins[bin--];
  scratch.found = bin, scratch.before = before;
}

// Puts the border behind the first tokens whose values add up to `target`, at least 1 and at most
// the sum of all. Tokens of one rank have one value.
template <class Value>
__device__ inline void cut(Row& row, Mass target, Value value, Scratch& scratch) {
  unsigned prefix = 0;
  Mass same = 0;  // of all tokens of the rank
  for (int digit = 0; digit < 3; digit++) {
    const int bits = digit < 2 ? 11 : 10, shift = digit == 0 ? 21 : digit == 1 ? 10 : 0;
    for (int bin = threadIdx.x; bin < BINS; bin += THREADS) scratch.bins[bin] = 0;
    __syncthreads();
    for (int v = threadIdx.x; v < row.V; v += THREADS) {
      const unsigned rank = rankOf(row.logits[v]);
      if (digit > 0 && rank >> (shift + bits) != prefix) continue;
      const Mass own = value(v);
      if (own) atomicAdd(&scratch.bins[rank >> shift & ((1 << bits) - 1)], own);
    }
    __syncthreads();
    if (threadIdx.x < 32) findBin(scratch, target);
    __syncthreads();
    const int bin = (int)scratch.found;
    target -= scratch.before;
    same = scratch.bins[bin];
    prefix = prefix << bits | bin;
    __syncthreads();
  }
  row.rank = prefix, row.last = row.V;
  if (target == same) return;
  // Some tokens of the last rank are left out: those with the highest ids.
  row.last = walk(row.V, target - 1, [&](int v) {
    return rankOf(row.logits[v]) == prefix ? value(v) : 0;
  }, scratch);
}

// One block per processor: said outright, since the compiler else spills to fit two.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    sample(int* __restrict__ tokens, const float* __restrict__ logits,
           const float* __restrict__ sampling, int N, int V) {
  const int n = blockIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (n >= N) return;
  __shared__ Scratch scratch;
  const float* numbers = sampling + n * 6;
  Row row = {logits + (long long)n * V, V, -INFINITE, numbers[0], 0.0f, 0, V};

  // The largest logit, the lowest id among equal ones, and whether one is NaN.
  float best = -INFINITE;
  int place = V;
  bool broken = false;
#pragma unroll 4
  for (int v = threadIdx.x; v < V; v += THREADS) {
    const float x = row.logits[v];
    broken |= x != x;
    if (x > best || (x == best && v < place)) best = x, place = v;
  }
  const float peak = warpMax(best);
  const int first = __reduce_min_sync(ALL, best == peak ? place : V);
  broken = __any_sync(ALL, broken);
  if (lane == 0) scratch.peaks[warp] = peak, scratch.places[warp] = broken ? -1 : first;
  __syncthreads();
  place = V;
  for (int i = 0; i < WARPS; i++) {
    const float x = scratch.peaks[i];
    const int v = scratch.places[i];
    broken |= v < 0;
    if (x > row.best || (x == row.best && v < place)) row.best = x, place = v;
  }
  if (broken || row.temperature == 0.0f || fabsf(row.best) == INFINITE) {
    if (threadIdx.x == 0) tokens[n] = broken ? -1 : place;
    return;
  }

  const auto kept = [&](int v) { return row.kept(v); };
  const float k = numbers[1], p = numbers[2];
  if (k > 0.0f && k < (float)V) cut(row, (Mass)k, [](int) -> Mass { return 1; }, scratch);
  if (p < 1.0f) {
    const Mass total = rowTotal(V, kept, scratch);
    const Mass wanted = (Mass)ceil((double)p * (double)total);
    cut(row, max(min(wanted, total), (Mass)1), [&](int v) { return row.mass(row.logits[v]); },
        scratch);
  }
  row.least = numbers[3];
  const Mass total = rowTotal(V, kept, scratch);
  const double draw = (double)numbers[4] + (double)numbers[5];
  const Mass target = min((Mass)(draw * (double)total), total - 1);
  const int token = walk(V, target, kept, scratch);
  if (threadIdx.x == 0) tokens[n] = token;
}
