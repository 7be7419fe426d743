// attention_mma: attention of many queries on tensor cores, in bf16 (FlashAttention-2's scheme).
//
//   out = softmax(scale q [prefix_k | k]ᵀ) [prefix_v | v]
//
// in, out, saved for backward: as in forward/attention_split.cu, without table; D is a multiple of
// 16, 128 at most
// reference: core/ops/attention.ts; softmax in float, but weights are rounded to bf16 before they
// meet the values: 2^-8 of the largest value.
//
// A block has QUERIES queries of one key head and walks tiles of KEYS slots: first the prefix, then
// the text that any of them sees. A warp has 16 queries, their scores and their weighted sums in
// registers. Blocks of late queries come first, since they have the most slots.
#include "common/attention.cuh"
#include "common/reduce.cuh"
#include "common/tiles.cuh"

constexpr int D = HEAD_DIM, WARPS = 4, THREADS = 32 * WARPS, SPAN = spanOf(D), STRIP = 16;
constexpr int QUERIES = WARPS * STRIP, KEYS = D <= 64 ? 64 : 32;
static_assert(BF16 && D % 16 == 0 && D <= 128, "operands are 16 × 16, sums are in registers");
static_assert(QUERIES <= 2 * KEYS, "queries fit the memory of keys and values");

extern "C" __global__ void __launch_bounds__(32 * WARPS, 2)
    attention_mma(Element* __restrict__ out, float* __restrict__ normalizer,
                  const Element* __restrict__ q, const Element* __restrict__ keys,
                  const Element* __restrict__ values, const int* __restrict__ first,
                  const int* __restrict__ last, const Element* __restrict__ prefixKeys,
                  const Element* __restrict__ prefixValues, int R, int B, int T, int S, int K,
                  int G, int M, float scale) {
  const int start = (gridDim.x - 1 - blockIdx.x) * QUERIES, k = blockIdx.y, row = blockIdx.z;
  if (start >= G * T) return;
  const Attention a = {R, B, T, S, K, G, M, scale, first, last};
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, pair = lane % 4 * 2;
  const int mine = start + warp * STRIP;
  __shared__ __align__(16) Half tile[2 * KEYS * SPAN];
  Half *const keyTile = tile, *const valueTile = tile + KEYS * SPAN;

  unsigned query[D / 16][4];
  loadOperands<D, QUERIES, THREADS>(query, tile, q, start, G * T, [&](int query) {
    return a.head(row % R, k, query) * D;
  });
  // Queries after the end see what the last one sees, and are not written.
  Range seen[2];
#pragma unroll
  for (int half = 0; half < 2; half++) {
    seen[half] = visible(a, row, min(mine + group + half * 8, G * T - 1));
  }
  const Range all = visibleToAny(a, row, start, QUERIES);
  float rowMax[2] = {-INFINITE, -INFINITE}, rowSum[2] = {}, sum[D / 8][4] = {};
  const float factor = scale * LOG2E;

  for (int segment = 0; segment < 2; segment++) {
    const bool text = segment == 1;
    const long long slots = a.slots(text, row, k) * D;
    const int end = text ? all.to + 1 : M;
    const auto offsetOf = [](int slot) { return slot * D; };
    for (int begin = text ? all.from : 0; begin < end; begin += KEYS) {
      __syncthreads();
      loadRows<D, KEYS, THREADS>(keyTile, (text ? keys : prefixKeys) + slots, begin, end, offsetOf);
      loadRows<D, KEYS, THREADS>(valueTile, (text ? values : prefixValues) + slots, begin, end,
                                 offsetOf);
      __syncthreads();
      float score[KEYS / 8][4] = {};
#pragma unroll
      for (int d = 0; d < D / 16; d++) {
#pragma unroll
        for (int n = 0; n < KEYS / 16; n++) {
          unsigned key[4];
          rightTransposed<SPAN>(key, keyTile + n * 16 * SPAN + d * 16);
          multiply(&score[2 * n], query[d], key);
        }
      }
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const Range range = text ? seen[half] : Range{0, M - 1};
        float higher = rowMax[half];
#pragma unroll
        for (int i = 0; i < KEYS / 4; i++) {
          float& each = score[i / 2][2 * half + i % 2];
          each = range.has(begin + i / 2 * 8 + pair + i % 2) ? each * factor : -INFINITE;
          higher = fmaxf(higher, each);
        }
        higher = fmaxf(higher, __shfl_xor_sync(ALL, higher, 1));
        higher = fmaxf(higher, __shfl_xor_sync(ALL, higher, 2));
        const float base = higher == -INFINITE ? 0.0f : higher;
        const float keep = exp2f(rowMax[half] - base);
        rowSum[half] *= keep, rowMax[half] = higher;
#pragma unroll
        for (int i = 0; i < KEYS / 4; i++) {
          float& each = score[i / 2][2 * half + i % 2];
          each = exp2f(each - base);  // from here on its weight
          rowSum[half] += each;
        }
#pragma unroll
        for (int d = 0; d < D / 8; d++) sum[d][2 * half] *= keep, sum[d][2 * half + 1] *= keep;
      }
#pragma unroll
      for (int n = 0; n < KEYS / 16; n++) {
        unsigned weight[4];
        asLeft(weight, &score[2 * n]);
#pragma unroll
        for (int d = 0; d < D / 16; d++) {
          unsigned value[4];
          rightOperand<SPAN>(value, valueTile + n * 16 * SPAN + d * 16);
          multiply(&sum[2 * d], weight, value);
        }
      }
    }
  }

#pragma unroll
  for (int half = 0; half < 2; half++) {
    float total = rowSum[half];
    total += __shfl_xor_sync(ALL, total, 1);
    total += __shfl_xor_sync(ALL, total, 2);
    const int each = mine + group + half * 8;
    if (each >= G * T) continue;
    const long long at = a.head(row, k, each);
    const float inverse = total > 0.0f ? 1.0f / total : 0.0f;
#pragma unroll
    for (int d = 0; d < D / 8; d++) {
      *reinterpret_cast<unsigned*>(out + at * D + d * 8 + pair) =
          packHalves(sum[d][2 * half] * inverse, sum[d][2 * half + 1] * inverse);
    }
    if (lane % 4 == 0) normalizer[at] = (rowMax[half] + log2f(total)) * LN2;
  }
}
