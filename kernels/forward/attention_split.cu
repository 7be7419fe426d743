// attention_split, attention_combine: grouped-query attention over text after a learned prefix,
// with the slots split over blocks (split-KV, flash decoding).
//
//   out = softmax(scale q [prefix_k | k]ᵀ) [prefix_v | v]
//
//   split     partial = Σ exp(scale q k − rowMax) v over the slots of one split, with its rowMax
//             and rowSum
//   combine   out = Σ partial / Σ rowSum, all relative to the largest rowMax
//
// in   q [R, T, H, D]; keys, values [R, K, S, D]; first (or null), last [B, T] i32: the slots a
//      query sees; table (or null) [B, S] i32: the row of the batch where a slot lies, for the
//      slots that any query of a row sees; prefixKeys, prefixValues [P, K, M, D], seen by all (M
//      may be 0)
// out  partial [splits, P·B, T, H, D], rowMax (in powers of two), rowSum [splits, P·B, T, H] f32;
//      out [P·B, T, H·D]
// saved for backward: normalizer = log Σ exp(score) [P·B, T, H] f32
// reference: core/ops/attention.ts; softmax in float, 2e-6 in float when combined, output rounding
// in bf16. A query that sees no slot gives zeros here, but the mean of all values in the reference.
//
// Split 0 is the prefix, where there is one; each of the others, SPLITS in all at most, has `chunk`
// slots of text. SHARE lanes have WIDTH dimensions each of one slot, so a warp reads whole rows,
// and keeps a partial softmax for each of its PLACES slots. Splits are cut by the room for slots,
// not by how many are in use, so that a captured launch stays valid; a split that no query sees has
// a rowSum of 0, and its partial is neither written nor read.
#include "common/attention.cuh"
#include "common/reduce.cuh"

// The least power of two that is not below n.
__host__ __device__ constexpr int powerOfTwo(int n) {
  return n <= 1 ? 1 : 2 * powerOfTwo((n + 1) / 2);
}

constexpr int D = HEAD_DIM, WARPS = 4, THREADS = 32 * WARPS, QUERIES = 8, SPLITS = 256;
constexpr int SHARE = powerOfTwo((D + WIDTH - 1) / WIDTH), PLACES = 32 / SHARE, AHEAD = 4;
static_assert(SHARE <= 32 && D <= SPLITS, "a warp reads whole rows, a thread adds up a dimension");

// Factor that makes sums relative to `rowMax` relative to `higher`.
__device__ inline float decay(float rowMax, float higher) {
  return rowMax == higher ? 1.0f : exp2f(rowMax - higher);
}

// The dimensions of this lane in a row, zeros after its end.
__device__ inline RawPack loadRaw(const Element* row, bool there) {
  RawPack pack = {};
  const int d = threadIdx.x % SHARE * WIDTH;
  if (!there || d >= D) return pack;
  if constexpr (D % WIDTH == 0) {
    pack = *reinterpret_cast<const RawPack*>(row + d);
  } else {
#pragma unroll
    for (int i = 0; i < WIDTH; i++) pack.v[i] = d + i < D ? row[d + i] : Element(0);
  }
  return pack;
}

// States the blocks per processor: the compiler would spill registers to fit one more.
extern "C" __global__ void __launch_bounds__(32 * WARPS, 2)
    attention_split(float* __restrict__ partial, float* __restrict__ rowMaxes,
                    float* __restrict__ rowSums, const Element* __restrict__ q,
                    const Element* __restrict__ keys, const Element* __restrict__ values,
                    const int* __restrict__ first, const int* __restrict__ last,
                    const int* __restrict__ table, const Element* __restrict__ prefixKeys,
                    const Element* __restrict__ prefixValues, int R, int rows, int B, int T, int S,
                    int K, int G, int M, int chunk, float scale) {
  const int k = blockIdx.x % K, start = blockIdx.x / K * QUERIES, row = blockIdx.z;
  if (start >= G * T) return;
  const Attention a = {R, B, T, S, K, G, M, scale, first, last};
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, part = lane % SHARE;
  const int count = min(QUERIES, G * T - start);
  const bool text = M == 0 || blockIdx.y > 0;
  __shared__ float queryTile[QUERIES][SHARE][WIDTH + 1];  // 1 more: lanes hit different banks
  __shared__ float sumOf[WARPS][QUERIES][SHARE * WIDTH];
  __shared__ float rowMaxOf[WARPS][QUERIES], rowSumOf[WARPS][QUERIES];
  __shared__ Range seen[QUERIES];

  const auto headOf = [&](int j) {
    return (long long)blockIdx.y * rows * T * K * G + a.head(row, k, start + j);
  };
  // Slots of this split that each query sees; those after the end see none.
  const int begin = text ? ((int)blockIdx.y - (M > 0)) * chunk : 0;
  if (threadIdx.x < QUERIES) {
    Range range = {0, M - 1};
    if (text && lane < count) {
      const Range all = visible(a, row, start + lane);
      range = {max(all.from, begin), min(all.to, begin + chunk - 1)};
    }
    seen[lane] = lane < count ? range : Range{S + M, -1};
  }
  for (int i = threadIdx.x; i < QUERIES * SHARE * WIDTH; i += THREADS) {
    const int j = i / (SHARE * WIDTH), d = i % (SHARE * WIDTH);
    const bool there = j < count && d < D;
    const float x = there ? toFloat(q[a.head(row % R, k, start + j) * D + d]) : 0.0f;
    queryTile[j][d / WIDTH][d % WIDTH] = x * scale * LOG2E;
  }
  __syncthreads();
  Range all = {S + M, -1};
  for (int j = 0; j < count; j++) {
    if (seen[j].from > seen[j].to) continue;
    all.from = min(all.from, seen[j].from), all.to = max(all.to, seen[j].to);
  }
  if (all.to < 0) {
    if (threadIdx.x < count) rowMaxes[headOf(lane)] = -INFINITE, rowSums[headOf(lane)] = 0.0f;
    return;
  }

  const Element* keyRows = (text ? keys : prefixKeys) + a.slots(text, row, k) * D;
  const Element* valueRows = (text ? values : prefixValues) + a.slots(text, row, k) * D;
  const auto offsetOf = [&](int slot) {  // from the own row on
    const int b = row % B;
    const long long other = text && table ? (long long)(table[b * S + slot] - b) * K * S : 0;
    return (other + slot) * D;
  };
  float rowMax[QUERIES], rowSum[QUERIES] = {}, sum[QUERIES][WIDTH] = {};
#pragma unroll
  for (int j = 0; j < QUERIES; j++) rowMax[j] = -INFINITE;
  constexpr int STEP = WARPS * PLACES;
  const int place = warp * PLACES + lane / SHARE;
  for (int base = all.from; base <= all.to; base += STEP * AHEAD) {
    RawPack key[AHEAD], value[AHEAD];
#pragma unroll
    for (int n = 0; n < AHEAD; n++) {
      const int slot = base + n * STEP + place;
      const bool there = slot <= all.to;
      const long long offset = there ? offsetOf(slot) : 0;
      key[n] = loadRaw(keyRows + offset, there);
      value[n] = loadRaw(valueRows + offset, there);
    }
#pragma unroll
    for (int j = 0; j < QUERIES; j++) {
      float score[AHEAD], higher = rowMax[j];
#pragma unroll
      for (int n = 0; n < AHEAD; n++) {
        score[n] = 0.0f;
#pragma unroll
        for (int i = 0; i < WIDTH; i++) score[n] += queryTile[j][part][i] * toFloat(key[n].v[i]);
#pragma unroll
        for (int distance = SHARE / 2; distance > 0; distance /= 2) {
          score[n] += __shfl_xor_sync(ALL, score[n], distance);
        }
        if (!seen[j].has(base + n * STEP + place)) score[n] = -INFINITE;
        higher = fmaxf(higher, score[n]);
      }
      const float keep = decay(rowMax[j], higher), zero = higher == -INFINITE ? 0.0f : higher;
      rowMax[j] = higher, rowSum[j] *= keep;
#pragma unroll
      for (int i = 0; i < WIDTH; i++) sum[j][i] *= keep;
#pragma unroll
      for (int n = 0; n < AHEAD; n++) {
        const float weight = exp2f(score[n] - zero);
        rowSum[j] += weight;
#pragma unroll
        for (int i = 0; i < WIDTH; i++) sum[j][i] += weight * toFloat(value[n].v[i]);
      }
    }
  }

  // Adds up the places of a warp, then the warps.
#pragma unroll
  for (int j = 0; j < QUERIES; j++) {
    float higher = rowMax[j];
#pragma unroll
    for (int distance = SHARE; distance < 32; distance *= 2) {
      higher = fmaxf(higher, __shfl_xor_sync(ALL, higher, distance));
    }
    const float keep = decay(rowMax[j], higher);
    rowSum[j] *= keep;
#pragma unroll
    for (int i = 0; i < WIDTH; i++) sum[j][i] *= keep;
#pragma unroll
    for (int distance = SHARE; distance < 32; distance *= 2) {
      rowSum[j] += __shfl_xor_sync(ALL, rowSum[j], distance);
#pragma unroll
      for (int i = 0; i < WIDTH; i++) sum[j][i] += __shfl_xor_sync(ALL, sum[j][i], distance);
    }
    if (lane < SHARE) {
#pragma unroll
      for (int i = 0; i < WIDTH; i++) sumOf[warp][j][part * WIDTH + i] = sum[j][i];
    }
    if (lane == 0) rowMaxOf[warp][j] = higher, rowSumOf[warp][j] = rowSum[j];
  }
  __syncthreads();
  for (int i = threadIdx.x; i < count * D; i += THREADS) {
    const int j = i / D, d = i % D;
    float higher = -INFINITE, whole = 0.0f, total = 0.0f;
    for (int w = 0; w < WARPS; w++) higher = fmaxf(higher, rowMaxOf[w][j]);
    for (int w = 0; w < WARPS; w++) {
      const float keep = decay(rowMaxOf[w][j], higher);
      whole += rowSumOf[w][j] * keep, total += sumOf[w][j][d] * keep;
    }
    partial[headOf(j) * D + d] = total;
    if (d == 0) rowMaxes[headOf(j)] = higher, rowSums[headOf(j)] = whole;
  }
}

// heads counts the query heads of all tokens of all rows; a block has one of them. A thread has a
// split, then a dimension.
extern "C" __global__ void __launch_bounds__(SPLITS)
    attention_combine(Element* __restrict__ out, float* __restrict__ normalizer,
                      const float* __restrict__ partial, const float* __restrict__ rowMaxes,
                      const float* __restrict__ rowSums, long long heads, int splits) {
  const long long head = blockIdx.x;
  if (head >= heads) return;
  __shared__ float keepOf[SPLITS], scratch[SPLITS / 32];
  const int own = threadIdx.x;
  const bool there = own < splits;
  const float rowMax = there ? rowMaxes[own * heads + head] : -INFINITE;
  const float higher = blockMax(rowMax, scratch);
  float rowSum = there ? rowSums[own * heads + head] : 0.0f;
  keepOf[own] = rowSum != 0.0f ? decay(rowMax, higher) : 0.0f;
  rowSum = blockSum(rowSum * keepOf[own], scratch);  // and all see what the others keep
  if (own >= D) return;
  float sum = 0.0f;
  for (int split = 0; split < splits; split++) {
    if (keepOf[split] != 0.0f) sum += partial[(split * heads + head) * D + own] * keepOf[split];
  }
  out[head * D + own] = fromFloat(rowSum != 0.0f ? sum / rowSum : 0.0f);
  if (own == 0) normalizer[head] = (higher + log2f(rowSum)) * LN2;
}
