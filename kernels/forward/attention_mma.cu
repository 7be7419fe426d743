// attention_mma: forward/attention.cu on tensor cores, in bf16 (FlashAttention-2's scheme).
//
//   out = softmax(scale q [prefix_k | k]ᵀ) [prefix_v | v]
//
// in, out, saved for backward: as in forward/attention.cu; D is a multiple of 16, 128 at most
// reference: core/ops/attention.ts; softmax in float, but weights are rounded to bf16 before they
// meet the values: 2^-8 of the largest value.
//
// A block has QUERIES queries of one key head, G heads of a token side by side, and walks tiles of
// KEYS slots: first the prefix, then the text from the first slot any of them sees to the last. A
// warp has strips of 16 queries in registers, and their scores and sums with them; tile i + 1 is
// copied while tile i is computed. Blocks of late queries come first, since they have the most
// slots; and the queries pass through the memory of the second tile.
#include "common/reduce.cuh"
#include "common/tiles.cuh"
#include "common/types.cuh"

constexpr int D = HEAD_DIM, WARPS = 4, THREADS = 32 * WARPS, SPAN = spanOf(D);
constexpr int STRIPS = D <= 64 ? 2 : 1, STRIP = 16;
constexpr int QUERIES = WARPS * STRIPS * STRIP, KEYS = D <= 64 ? 64 : 32;
// Blocks per processor: three where it has the shared memory and the compiler is told to try.
#if __CUDA_ARCH__ == 800 || __CUDA_ARCH__ == 900 || __CUDA_ARCH__ == 1000
constexpr int BLOCKS = D <= 64 ? 2 : 3;
#else
constexpr int BLOCKS = 2;
#endif
constexpr float LOG2E = 1.44269504f;
static_assert(BF16 && D % 16 == 0 && D <= 128, "operands are 16 × 16, sums are in registers");

struct Stage {
  Half keys[KEYS * SPAN];
  Half values[KEYS * SPAN];
};
static_assert(QUERIES <= 2 * KEYS, "queries fit into one stage");

// The slots that some queries see: all of them see what is between `latest` and `earliest`.
struct Range {
  int lowest, latest, earliest, highest;
};

__device__ inline Range warpRange(int from, int to) {
  return {__reduce_min_sync(ALL, from), __reduce_max_sync(ALL, from), __reduce_min_sync(ALL, to),
          __reduce_max_sync(ALL, to)};
}

extern "C" __global__ void __launch_bounds__(32 * WARPS, BLOCKS)
    attention_mma(Element* __restrict__ out, float* __restrict__ normalizer,
                  const Element* __restrict__ q, const Element* __restrict__ keys,
                  const Element* __restrict__ values, const int* __restrict__ first,
                  const int* __restrict__ last, const Element* __restrict__ prefixKeys,
                  const Element* __restrict__ prefixValues, int R, int B, int T, int S, int K,
                  int G, int M, float scale) {
  takeTurn();
  const int start = (gridDim.x - 1 - blockIdx.x) * QUERIES, k = blockIdx.y, row = blockIdx.z;
  if (start >= G * T) return;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, pair = lane % 4 * 2;
  const int b = row % B, own = row % R, stream = row / B, H = K * G;
  __shared__ __align__(16) Stage stages[2];
  __shared__ int lowestOf[WARPS], highestOf[WARPS];

  // Queries of this warp; those behind the end see what the last one sees, and are not written.
  const int mine = start + warp * STRIPS * STRIP;
  const bool working = mine < G * T;
  const auto token = [&](int query) { return b * T + min(query, G * T - 1) / G; };
  const int sample = token(mine + lane % (STRIPS * STRIP));
  const Range range = warpRange(first ? max(first[sample], 0) : 0, min(last[sample], S - 1));
  if (lane == 0) lowestOf[warp] = range.lowest, highestOf[warp] = range.highest;
  copyQueries<D, QUERIES, THREADS>(stages[1].keys, q + (long long)own * T * H * D, start, G * T, k,
                                   K, G);
  __syncthreads();
  int lowest = lowestOf[0], highest = highestOf[0];
  for (int i = 1; i < WARPS; i++) {
    lowest = min(lowest, lowestOf[i]), highest = max(highest, highestOf[i]);
  }

  const int prefixTiles = (M + KEYS - 1) / KEYS;
  const int tiles = prefixTiles + max(0, highest - lowest + KEYS) / KEYS;
  const long long textHead = ((long long)own * K + k) * S * D;
  const long long prefixHead = ((long long)stream * K + k) * M * D;
  const auto beginOf = [&](int tile) {
    return tile < prefixTiles ? tile * KEYS : lowest + (tile - prefixTiles) * KEYS;
  };
  const auto copyTile = [&](int tile) {
    Stage& stage = stages[tile % 2];
    const bool text = tile >= prefixTiles;
    const int begin = beginOf(tile), end = text ? highest + 1 : M;
    const Element* keyRows = text ? keys + textHead : prefixKeys + prefixHead;
    const Element* valueRows = text ? values + textHead : prefixValues + prefixHead;
    copyRows<D, KEYS, THREADS>(stage.keys, keyRows, begin, end);
    copyRows<D, KEYS, THREADS>(stage.values, valueRows, begin, end);
  };
  if (tiles > 0) copyTile(0);
  cp_async_commit();
  cp_async_wait<0>();
  __syncthreads();

  unsigned query[STRIPS][D / 16][4];
  int from[STRIPS][2], to[STRIPS][2];
  float peak[STRIPS][2], total[STRIPS][2] = {}, mixed[STRIPS][D / 8][4] = {};
#pragma unroll
  for (int s = 0; s < STRIPS; s++) {
    const Half* rows = stages[1].keys + (warp * STRIPS + s) * STRIP * SPAN;
#pragma unroll
    for (int d = 0; d < D / 16; d++) leftOperand<SPAN>(query[s][d], rows + d * 16);
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int at = token(mine + s * STRIP + group + half * 8);
      from[s][half] = first ? first[at] : 0, to[s][half] = min(last[at], S - 1);
      peak[s][half] = -INFINITE;
    }
  }

  const float factor = scale * LOG2E;
  for (int tile = 0; tile < tiles; tile++) {
    cp_async_wait<0>();
    __syncthreads();  // the tile is there, and the stage of the next one is no longer read
    if (tile + 1 < tiles) copyTile(tile + 1);
    cp_async_commit();
    const bool text = tile >= prefixTiles;
    const int begin = beginOf(tile), end = begin + KEYS;
    if (!working || (text && (end <= range.lowest || range.highest < begin))) continue;
    const bool whole = text ? range.latest <= begin && end - 1 <= range.earliest : end <= M;
    const Stage& stage = stages[tile % 2];

    float score[STRIPS][KEYS / 8][4] = {};
#pragma unroll
    for (int d = 0; d < D / 16; d++) {
#pragma unroll
      for (int n = 0; n < KEYS / 16; n++) {
        unsigned key[4];
        rightTransposed<SPAN>(key, stage.keys + n * 16 * SPAN + d * 16);
#pragma unroll
        for (int s = 0; s < STRIPS; s++) multiply(&score[s][2 * n], query[s][d], key);
      }
    }

#pragma unroll
    for (int s = 0; s < STRIPS; s++) {
#pragma unroll
      for (int half = 0; half < 2; half++) {
        if (!whole) {
          const int low = text ? from[s][half] : 0, high = text ? to[s][half] : M - 1;
#pragma unroll
          for (int i = 0; i < KEYS / 4; i++) {
            const int slot = begin + i / 2 * 8 + pair + i % 2;
            float& each = score[s][i / 2][2 * half + i % 2];
            each = low <= slot && slot <= high ? each : -INFINITE;
          }
        }
        float higher = peak[s][half];
#pragma unroll
        for (int i = 0; i < KEYS / 4; i++) {
          higher = fmaxf(higher, score[s][i / 2][2 * half + i % 2]);
        }
        higher = fmaxf(higher, __shfl_xor_sync(ALL, higher, 1));
        higher = fmaxf(higher, __shfl_xor_sync(ALL, higher, 2));
        const float base = higher == -INFINITE ? 0.0f : higher * factor;
        const float keep = exp2f(peak[s][half] * factor - base);
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < KEYS / 4; i++) {
          float& each = score[s][i / 2][2 * half + i % 2];
          each = exp2f(each * factor - base);  // from here on its weight
          sum += each;
        }
        total[s][half] = total[s][half] * keep + sum;
        peak[s][half] = higher;
#pragma unroll
        for (int d = 0; d < D / 8; d++) {
          mixed[s][d][2 * half] *= keep, mixed[s][d][2 * half + 1] *= keep;
        }
      }
    }

#pragma unroll
    for (int n = 0; n < KEYS / 16; n++) {
      unsigned weight[STRIPS][4];
#pragma unroll
      for (int s = 0; s < STRIPS; s++) asLeft(weight[s], &score[s][2 * n]);
#pragma unroll
      for (int d = 0; d < D / 16; d++) {
        unsigned value[4];
        rightOperand<SPAN>(value, stage.values + n * 16 * SPAN + d * 16);
#pragma unroll
        for (int s = 0; s < STRIPS; s++) multiply(&mixed[s][2 * d], weight[s], value);
      }
    }
  }

#pragma unroll
  for (int s = 0; s < STRIPS; s++) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float sum = total[s][half];
      sum += __shfl_xor_sync(ALL, sum, 1);
      sum += __shfl_xor_sync(ALL, sum, 2);
      const int each = mine + s * STRIP + group + half * 8;
      if (each >= G * T) continue;
      const long long at = ((long long)row * T + each / G) * H + k * G + each % G;
      const float inverse = sum > 0.0f ? 1.0f / sum : 0.0f;
#pragma unroll
      for (int d = 0; d < D / 8; d++) {
        const float* pairOf = &mixed[s][d][2 * half];
        *reinterpret_cast<unsigned*>(out + at * D + d * 8 + pair) =
            packHalves(pairOf[0] * inverse, pairOf[1] * inverse);
      }
      if (normalizer && lane % 4 == 0) normalizer[at] = peak[s][half] * scale + logf(sum);
    }
  }
}
