// attention: grouped-query attention over text behind a learned prefix, one pass over keys.
//
//   out = softmax(scale q [prefix_k | k]ᵀ) [prefix_v | v]
//
// in   q [R, T, H, D]; keys, values [R, K, S, D]; first (or null), last [B, T] i32: the slots a
//      query sees; table (or null) [B, S] i32: the row of the batch where a slot lies, read from
//      the first to the last slot that queries of a row see; prefixKeys, prefixValues
//      [P, K, M, D], seen by all (M may be 0)
// out  out [P·B, T, H·D]
// saved for backward: normalizer = log Σ exp(score) [P·B, T, H] f32, where it is not null
// reference: core/ops/attention.ts; softmax in float, 2e-6 in float, output rounding in bf16.
//
// R is P·B, or B where all streams share their text (layer 0): attention row r reads row r mod R. A
// block has TILE queries of one key head, G heads of a token side by side, and walks the slots
// SLOTS at a time: in the scores a lane is a slot, in the mixture a lane is a dimension. A query
// that sees no slot at all gives zeros here, but the mean of all values there.
#include "common/reduce.cuh"
#include "common/types.cuh"

constexpr int D = HEAD_DIM, WARPS = 4, QUERIES = 4, TILE = WARPS * QUERIES, SLOTS = 32;
constexpr int PARTS = (D + 31) / 32;  // dimensions of one lane
constexpr float LOG2E = 1.44269504f, LN2 = 0.69314718f;
static_assert(D % 4 == 0, "heads are read four elements at a time");

// rows of D from slot begin on, zeros from slot `end` on; offsetOf(slot) tells where a row begins
template <class OffsetOf>
__device__ inline void loadTile(float* tile, int stride, const Element* rows, int begin, int end,
                                OffsetOf offsetOf) {
  for (int i = threadIdx.x; i < SLOTS * D; i += 32 * WARPS) {
    const int slot = begin + i / D;
    tile[i / D * stride + i % D] = slot < end ? widen(rows[offsetOf(slot) + i % D]) : 0.0f;
  }
}

// Three blocks per processor leave 168 registers; unasked, the compiler takes fewer and spills.
extern "C" __global__ void __launch_bounds__(32 * WARPS, 3)
    attention(Element* __restrict__ out, float* __restrict__ normalizer,
              const Element* __restrict__ q, const Element* __restrict__ keys,
              const Element* __restrict__ values, const int* __restrict__ first,
              const int* __restrict__ last, const int* __restrict__ table,
              const Element* __restrict__ prefixKeys, const Element* __restrict__ prefixValues,
              int R, int B, int T, int S, int K, int G, int M, float scale) {
  takeTurn();
  const int start = blockIdx.x * TILE, k = blockIdx.y, row = blockIdx.z;
  if (start >= G * T) return;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int b = row % B, own = row % R, stream = row / B, H = K * G;
  __shared__ __align__(16) float queryTile[TILE][D];
  __shared__ __align__(16) float keyTile[SLOTS][D + 4];  // 4 more: lanes hit different banks
  __shared__ float valueTile[SLOTS][D];

  for (int i = threadIdx.x; i < TILE * D; i += 32 * WARPS) {
    const int query = start + i / D, t = query / G, h = k * G + query % G;
    const bool there = query < G * T;
    const long long at = (((long long)own * T + t) * H + h) * D + i % D;
    queryTile[i / D][i % D] = there ? widen(q[at]) * scale * LOG2E : 0.0f;
  }
  int from[QUERIES], to[QUERIES];
  float peak[QUERIES], total[QUERIES] = {}, mixed[QUERIES][PARTS] = {};
#pragma unroll
  for (int j = 0; j < QUERIES; j++) {
    const int query = start + warp * QUERIES + j, t = query / G;
    const bool there = query < G * T;
    from[j] = there && first ? first[b * T + t] : 0;
    to[j] = there ? last[b * T + t] : -1;
    peak[j] = -INFINITE;
  }
  // Slots that any query of the tile sees.
  int lowest = S, highest = -1;
  for (int t = start / G; t < T && t * G < start + TILE; t++) {
    lowest = min(lowest, first ? first[b * T + t] : 0);
    highest = max(highest, last[b * T + t]);
  }

  for (int segment = 0; segment < 2; segment++) {
    const bool text = segment == 1;
    const long long head = text ? ((long long)own * K + k) * S : ((long long)stream * K + k) * M;
    const Element* keyRows = (text ? keys : prefixKeys) + head * D;        // (S or M, D)
    const Element* valueRows = (text ? values : prefixValues) + head * D;  // (S or M, D)
    const int end = text ? min(S, highest + 1) : M;
    for (int begin = text ? max(0, lowest) : 0; begin < end; begin += SLOTS) {
      __syncthreads();
      // Apart, so that the offsets of a table do not cost registers where there is none.
      const auto loadTiles = [&](auto offsetOf) {
        loadTile(&keyTile[0][0], D + 4, keyRows, begin, end, offsetOf);
        loadTile(&valueTile[0][0], D, valueRows, begin, end, offsetOf);
      };
      if (text && table) {
        loadTiles([&](int slot) {
          return ((long long)(table[b * S + slot] - b) * K * S + slot) * D;
        });
      } else {
        loadTiles([](int slot) { return slot * D; });
      }
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
        const bool seen = slot < end && (!text || (from[j] <= slot && slot <= to[j]));
        const float higher = fmaxf(peak[j], warpMax(seen ? score[j] : -INFINITE));
        const float keep = higher == -INFINITE ? 0.0f : exp2f(peak[j] - higher);
        score[j] = seen ? exp2f(score[j] - higher) : 0.0f;  // from here on its weight
        total[j] = total[j] * keep + warpSum(score[j]);
        peak[j] = higher;
#pragma unroll
        for (int e = 0; e < PARTS; e++) mixed[j][e] *= keep;
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
          for (int e = 0; e < PARTS; e++) mixed[j][e] += weight * value[e];
        }
      }
    }
  }

#pragma unroll
  for (int j = 0; j < QUERIES; j++) {
    const int query = start + warp * QUERIES + j;
    if (query >= G * T) continue;
    const long long at = ((long long)row * T + query / G) * H + k * G + query % G;
    const float inverse = total[j] > 0.0f ? 1.0f / total[j] : 0.0f;
#pragma unroll
    for (int e = 0; e < PARTS; e++) {
      const int d = lane + 32 * e;
      if (d < D) out[at * D + d] = narrow(mixed[j][e] * inverse);
    }
    if (normalizer && lane == 0) normalizer[at] = (peak[j] + log2f(total[j])) * LN2;
  }
}
