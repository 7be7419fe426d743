// attention_split_mma: attention_split of forward/attention_split.cu on tensor cores, in bf16.
//
//   out = softmax(scale q [prefix_k | k]ᵀ) [prefix_v | v]
//
// in, out: as there, in splits of `chunk` slots behind that of the prefix; G·T is 16 at most and D
// a multiple of 16, 128 at most
// reference: core/ops/attention.ts; softmax in float, but weights are rounded to bf16 before they
// meet the values: 2^-8 of the largest value.
//
// All queries are the 16 rows of every product. Each warp walks slots of its own, 16 at a time, and
// copies the next 16 while it computes. Warps meet only at the end, and most of each product is
// padding, which costs nothing while memory is what takes the time.
#include "common/mixtures.cuh"
#include "common/reduce.cuh"
#include "common/tiles.cuh"
#include "common/turn.cuh"

constexpr int D = HEAD_DIM, WARPS = 2, STRIP = 16, SPAN = spanOf(D);
constexpr float LOG2E = 1.44269504f;
static_assert(BF16 && D % 16 == 0 && D <= 128, "operands are 16 × 16, sums are in registers");

struct Stage {
  Half keys[STRIP * SPAN];
  Half values[STRIP * SPAN];
};

union Memory {
  Stage stages[WARPS][2];
  Mixtures<D, WARPS, STRIP> mixtures;  // when all is computed
};

extern "C" __global__ void __launch_bounds__(32 * WARPS, 5)
    attention_split_mma(float* __restrict__ partial, float* __restrict__ peaks,
                        float* __restrict__ totals, const Element* __restrict__ q,
                        const Element* __restrict__ keys, const Element* __restrict__ values,
                        const int* __restrict__ first, const int* __restrict__ last,
                        const int* __restrict__ table, const Element* __restrict__ prefixKeys,
                        const Element* __restrict__ prefixValues, int R, int rows, int B, int T,
                        int S, int K, int G, int M, int chunk, float scale) {
  takeTurn();
  const int k = blockIdx.y, row = blockIdx.z, count = G * T;
  if (count > STRIP) return;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, pair = lane % 4 * 2;
  const int own = row % R, H = K * G;
  const bool text = M == 0 || blockIdx.x > 0;
  const long long heads = (long long)rows * T * H;
  __shared__ __align__(16) Memory memory;

  const auto headOf = [&](int j) {
    return blockIdx.x * heads + ((long long)row * T + j / G) * H + k * G + j % G;
  };
  // What a query sees of this split; those behind the end see what the last one sees.
  const int begin = text ? (blockIdx.x - (M > 0)) * chunk : 0;
  const int end = text ? min(S, begin + chunk) : M;
  const auto lowOf = [&](int j) {
    return text && first ? max(begin, first[row % B * T + min(j, count - 1) / G]) : begin;
  };
  const auto highOf = [&](int j) {
    return text ? min(end - 1, last[row % B * T + min(j, count - 1) / G]) : end - 1;
  };
  const int lowest = __reduce_min_sync(ALL, lowOf(lane));
  const int highest = __reduce_max_sync(ALL, highOf(lane));
  if (lowest > highest) {
    if (threadIdx.x < count) {
      peaks[headOf(lane)] = -INFINITE;
      totals[headOf(lane)] = 0.0f;
    }
    return;
  }

  const long long head = ((long long)(text ? own : row / B) * K + k) * (text ? S : M) * D;
  const Element* keyRows = (text ? keys : prefixKeys) + head;
  const Element* valueRows = (text ? values : prefixValues) + head;
  const auto offsetOf = [&](int slot) {  // from the own row on
    long long offset = slot * D;
    if (text && table) offset += (long long)(table[row % B * S + slot] - row % B) * K * S * D;
    return offset;
  };
  const auto copyTile = [&](int from, Stage& stage) {
    copyRows<D, STRIP, 32>(stage.keys, keyRows, from, highest + 1, offsetOf);
    copyRows<D, STRIP, 32>(stage.values, valueRows, from, highest + 1, offsetOf);
  };
  constexpr int STEP = WARPS * STRIP;
  int slots = lowest + warp * STRIP;
  if (slots <= highest) copyTile(slots, memory.stages[warp][0]);
  cp_async_commit();

  unsigned query[D / 16][4];
  int low[2], high[2];
  float peak[2] = {-INFINITE, -INFINITE}, total[2] = {}, mixed[D / 8][4] = {};
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int j = group + half * 8;
    low[half] = lowOf(j), high[half] = highOf(j);
    const long long at = ((long long)own * T + min(j, count - 1) / G) * H + k * G + j % G;
#pragma unroll
    for (int d = 0; d < D / 16; d++) {
      const Element* pairs = q + at * D + d * 16 + pair;
      query[d][half] = j < count ? *reinterpret_cast<const unsigned*>(pairs) : 0;
      query[d][half + 2] = j < count ? *reinterpret_cast<const unsigned*>(pairs + 8) : 0;
    }
  }

  const float factor = scale * LOG2E;
  for (int at = 0; slots <= highest; slots += STEP, at ^= 1) {
    if (slots + STEP <= highest) copyTile(slots + STEP, memory.stages[warp][at ^ 1]);
    cp_async_commit();
    cp_async_wait<1>();
    __syncwarp();  // what the other lanes copied is there, too
    const Stage& stage = memory.stages[warp][at];
    float score[2][4] = {};
#pragma unroll
    for (int d = 0; d < D / 16; d++) {
      unsigned key[4];
      rightTransposed<SPAN>(key, stage.keys + d * 16);
      multiply(score, query[d], key);
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float higher = peak[half];
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const int slot = slots + i / 2 * 8 + pair + i % 2;
        float& each = score[i / 2][2 * half + i % 2];
        each = low[half] <= slot && slot <= high[half] ? each * factor : -INFINITE;
        higher = fmaxf(higher, each);
      }
      higher = fmaxf(higher, __shfl_xor_sync(ALL, higher, 1));
      higher = fmaxf(higher, __shfl_xor_sync(ALL, higher, 2));
      const float keep = decay(peak[half], higher), base = higher == -INFINITE ? 0.0f : higher;
      total[half] *= keep, peak[half] = higher;
#pragma unroll
      for (int i = 0; i < 4; i++) {
        float& each = score[i / 2][2 * half + i % 2];
        each = exp2f(each - base);  // from here on its weight
        total[half] += each;
      }
#pragma unroll
      for (int d = 0; d < D / 8; d++) mixed[d][2 * half] *= keep, mixed[d][2 * half + 1] *= keep;
    }
    unsigned weight[4];
    asLeft(weight, score);
#pragma unroll
    for (int d = 0; d < D / 16; d++) {
      unsigned value[4];
      rightOperand<SPAN>(value, stage.values + d * 16);
      multiply(&mixed[2 * d], weight, value);
    }
    __syncwarp();  // this stage is no longer read
  }

  __syncthreads();
  auto& mixtures = memory.mixtures;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int j = group + half * 8;
    total[half] += __shfl_xor_sync(ALL, total[half], 1);
    total[half] += __shfl_xor_sync(ALL, total[half], 2);
    if (pair == 0) mixtures.peak[warp][j] = peak[half], mixtures.total[warp][j] = total[half];
#pragma unroll
    for (int d = 0; d < D / 8; d++) {
      *reinterpret_cast<float2*>(&mixtures.mixed[warp][j][d * 8 + pair]) = {
          mixed[d][2 * half], mixed[d][2 * half + 1]};
    }
  }
  __syncthreads();
  mixtures.write(partial, peaks, totals, count, headOf);
}
