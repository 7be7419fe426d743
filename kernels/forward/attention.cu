// attention: grouped-query attention over text behind a learned prefix, one pass over keys.
//
//   out = softmax(scale q [prefix_k | k]ᵀ) [prefix_v | v]
//
// in   q [R, T, H, D]; keys, values [R, K, S, D]; first (or null), last [B, T] i32: the slots a
//      query sees; prefixKeys, prefixValues [P, K, M, D], seen by all (M may be 0)
// out  out [P·B, T, H·D]
// saved for backward: normalizer = log Σ exp(score) [P·B, T, H] f32, where it is not null
// reference: core/ops/attention.ts; softmax in float, 2e-6 in float, output rounding in bf16.
//
// A block has TILE queries of one key head and walks the slots SLOTS at a time: in the scores a
// lane is a slot, in the weighted sum a lane is a dimension. A query that sees no slot gives zeros
// here, but the mean of all values in the reference.
#include "common/attention.cuh"
#include "common/reduce.cuh"

constexpr int D = HEAD_DIM, WARPS = 4, QUERIES = 4, TILE = WARPS * QUERIES, SLOTS = 32;
constexpr int PARTS = (D + 31) / 32;  // dimensions of one lane
static_assert(D % 4 == 0, "heads are read four elements at a time");

// rows of D from slot begin on, zeros from slot `end` on
__device__ inline void loadTile(float* tile, int stride, const Element* rows, int begin, int end) {
  for (int i = threadIdx.x; i < SLOTS * D; i += 32 * WARPS) {
    const int slot = begin + i / D;
    tile[i / D * stride + i % D] = slot < end ? toFloat(rows[slot * D + i % D]) : 0.0f;
  }
}

// Three blocks per processor leave 168 registers; unasked, the compiler takes fewer and spills.
extern "C" __global__ void __launch_bounds__(32 * WARPS, 3)
    attention(Element* __restrict__ out, float* __restrict__ normalizer,
              const Element* __restrict__ q, const Element* __restrict__ keys,
              const Element* __restrict__ values, const int* __restrict__ first,
              const int* __restrict__ last, const Element* __restrict__ prefixKeys,
              const Element* __restrict__ prefixValues, int R, int B, int T, int S, int K, int G,
              int M, float scale) {
  const int start = blockIdx.x * TILE, k = blockIdx.y, row = blockIdx.z;
  if (start >= G * T) return;
  const Attention a = {R, B, T, S, K, G, M, scale, first, last};
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  __shared__ __align__(16) float queryTile[TILE][D];
  __shared__ __align__(16) float keyTile[SLOTS][D + 4];  // 4 more: lanes hit different banks
  __shared__ float valueTile[SLOTS][D];

  for (int i = threadIdx.x; i < TILE * D; i += 32 * WARPS) {
    const int query = start + i / D;
    const float x = query < G * T ? toFloat(q[a.head(row % R, k, query) * D + i % D]) : 0.0f;
    queryTile[i / D][i % D] = x * scale * LOG2E;
  }
  Range seen[QUERIES];
  float rowMax[QUERIES], rowSum[QUERIES] = {}, sum[QUERIES][PARTS] = {};
#pragma unroll
  for (int j = 0; j < QUERIES; j++) {
    const int query = start + warp * QUERIES + j;
    seen[j] = query < G * T ? visible(a, row, query) : Range{0, -1};
    rowMax[j] = -INFINITE;
  }
  const Range all = visibleToAny(a, row, start, TILE);

  for (int segment = 0; segment < 2; segment++) {
    const bool text = segment == 1;
    const Element* keyRows = (text ? keys : prefixKeys) + a.slots(text, row, k) * D;
    const Element* valueRows = (text ? values : prefixValues) + a.slots(text, row, k) * D;
    const int end = text ? all.to + 1 : M;
    for (int begin = text ? all.from : 0; begin < end; begin += SLOTS) {
      __syncthreads();
      loadTile(&keyTile[0][0], D + 4, keyRows, begin, end);
      loadTile(&valueTile[0][0], D, valueRows, begin, end);
      __syncthreads();
      float score[QUERIES] = {};
#pragma unroll 4
      for (int d = 0; d < D; d += 4) {
        const float4 key = *reinterpret_cast<const float4*>(&keyTile[lane][d]);
#pragma unroll
        for (int j = 0; j < QUERIES; j++) {
          const float4 x = *reinterpret_cast<const float4*>(&queryTile[warp * QUERIES + j][d]);
          score[j] += x.x * key.x + x.y * key.y + x.z * key.z + x.w * key.w;
        }
      }
      const int slot = begin + lane;
#pragma unroll
      for (int j = 0; j < QUERIES; j++) {
        const bool sees = slot < end && (!text || seen[j].has(slot));
        const float higher = fmaxf(rowMax[j], warpMax(sees ? score[j] : -INFINITE));
        const float keep = higher == -INFINITE ? 0.0f : exp2f(rowMax[j] - higher);
        score[j] = sees ? exp2f(score[j] - higher) : 0.0f;  // from here on its weight
        rowSum[j] = rowSum[j] * keep + warpSum(score[j]);
        rowMax[j] = higher;
#pragma unroll
        for (int e = 0; e < PARTS; e++) sum[j][e] *= keep;
      }
#pragma unroll 4
      for (int i = 0; i < SLOTS; i++) {
        float value[PARTS];
#pragma unroll
        for (int e = 0; e < PARTS; e++) {
          const int d = lane + 32 * e;
          value[e] = d < D ? valueTile[i][d] : 0.0f;
        }
#pragma unroll
        for (int j = 0; j < QUERIES; j++) {
          const float weight = __shfl_sync(ALL, score[j], i);
#pragma unroll
          for (int e = 0; e < PARTS; e++) sum[j][e] += weight * value[e];
        }
      }
    }
  }

#pragma unroll
  for (int j = 0; j < QUERIES; j++) {
    const int query = start + warp * QUERIES + j;
    if (query >= G * T) continue;
    const long long at = a.head(row, k, query);
    const float inverse = rowSum[j] > 0.0f ? 1.0f / rowSum[j] : 0.0f;
#pragma unroll
    for (int e = 0; e < PARTS; e++) {
      const int d = lane + 32 * e;
      if (d < D) out[at * D + d] = fromFloat(sum[j][e] * inverse);
    }
    if (normalizer && lane == 0) normalizer[at] = (rowMax[j] + log2f(rowSum[j])) * LN2;
  }
}
