// attention_split: attention of few queries over many slots, shared out (flash decoding).
//
//   partial = Σ exp(scale q k) v over the slots of one split
//
// in   as in forward/attention.cu; D / WIDTH is a power of two, 32 at most
// out  partial [splits, P·B, T, H, D], peaks, totals [splits, P·B, T, H] f32: mixtures as in
//      common/mixtures.cuh, which attention_combine puts together
// reference: core/ops/attention.ts; 2e-6 in float when combined. In bf16 the split on tensor cores
// takes its place.
//
// Split 0 is the prefix, where there is one; each of the others has `chunk` slots of text. SHARE
// lanes have WIDTH dimensions each of one slot, so a warp reads whole rows, and keeps one mixture
// for each of its 32 / SHARE places. Splits are cut by the room for slots, not by how many are in
// use, so that a captured launch stays valid; a split that no query sees reads nothing and says so
// by a total of 0, and its partial mixture is never written nor read.
#include "common/mixtures.cuh"
#include "common/reduce.cuh"
#include "common/types.cuh"

constexpr int D = HEAD_DIM, WARPS = 4, THREADS = 32 * WARPS, QUERIES = 8;
constexpr int SHARE = D / WIDTH, PLACES = 32 / SHARE, AHEAD = 4;
constexpr float LOG2E = 1.44269504f;
static_assert(D % WIDTH == 0 && SHARE <= 32 && 32 % SHARE == 0, "a warp reads whole rows");

__device__ inline RawPack loadRaw(const Element* row, bool there) {
  RawPack pack = {};
  if (there) pack = *reinterpret_cast<const RawPack*>(row + threadIdx.x % SHARE * WIDTH);
  return pack;
}

extern "C" __global__ void __launch_bounds__(32 * WARPS, 3)
    attention_split(float* __restrict__ partial, float* __restrict__ peaks,
                    float* __restrict__ totals, const Element* __restrict__ q,
                    const Element* __restrict__ keys, const Element* __restrict__ values,
                    const int* __restrict__ first, const int* __restrict__ last,
                    const int* __restrict__ table, const Element* __restrict__ prefixKeys,
                    const Element* __restrict__ prefixValues, int R, int rows, int B, int T, int S,
                    int K, int G, int M, int chunk, float scale) {
  takeTurn();
  const int k = blockIdx.y % K, start = blockIdx.y / K * QUERIES, row = blockIdx.z;
  if (start >= G * T) return;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, H = K * G;
  const int own = row % R, count = min(QUERIES, G * T - start);
  const bool text = M == 0 || blockIdx.x > 0;
  const long long heads = (long long)rows * T * H;
  __shared__ float4 queryTile[QUERIES][WIDTH / 4][SHARE];  // lanes read neighbours
  __shared__ Mixtures<D, WARPS, QUERIES> mixtures;
  __shared__ int from[QUERIES], to[QUERIES];

  const auto headOf = [&](int j) {
    const int query = start + j;
    return blockIdx.x * heads + ((long long)row * T + query / G) * H + k * G + query % G;
  };
  // What each query sees of this split; those behind the end see what the last one sees.
  const int at = row % B * T + (start + min(lane, count - 1)) / G;
  const int begin = text ? (blockIdx.x - (M > 0)) * chunk : 0;
  const int low = max(begin, text && first ? first[at] : 0);
  const int high = min(text ? min(S, begin + chunk) : M, text ? last[at] + 1 : M) - 1;
  const int lowest = __reduce_min_sync(ALL, low), highest = __reduce_max_sync(ALL, high);
  if (lowest > highest) {
    if (threadIdx.x < count) {
      peaks[headOf(lane)] = -INFINITE;
      totals[headOf(lane)] = 0.0f;
    }
    return;
  }
  if (threadIdx.x < QUERIES) from[lane] = low, to[lane] = high;
  for (int i = threadIdx.x; i < QUERIES * D; i += THREADS) {
    const int j = i / D, d = i % D, query = start + j;
    const long long head = ((long long)own * T + query / G) * H + k * G + query % G;
    float* to4 = &queryTile[j][d % WIDTH / 4][d / WIDTH].x;
    to4[d % 4] = j < count ? widen(q[head * D + d]) * scale * LOG2E : 0.0f;
  }
  __syncthreads();

  const int size = text ? S : M;
  const long long head = ((long long)(text ? own : row / B) * K + k) * size * D;
  const Element* keyRows = (text ? keys : prefixKeys) + head;
  const Element* valueRows = (text ? values : prefixValues) + head;
  float peak[QUERIES], total[QUERIES] = {}, mixed[QUERIES][WIDTH] = {};
#pragma unroll
  for (int j = 0; j < QUERIES; j++) peak[j] = -INFINITE;

  const auto offsetOf = [&](int slot) {  // from the own row on
    long long offset = slot * D;
    if (text && table) offset += (long long)(table[row % B * S + slot] - row % B) * K * S * D;
    return offset;
  };
  constexpr int STEP = WARPS * PLACES;
  const int place = warp * PLACES + lane / SHARE;
  for (int base = lowest; base <= highest; base += STEP * AHEAD) {
    RawPack key[AHEAD], value[AHEAD];
#pragma unroll
    for (int a = 0; a < AHEAD; a++) {
      const int slot = base + a * STEP + place;
      const bool there = slot <= highest;
      const long long offset = there ? offsetOf(slot) : 0;
      key[a] = loadRaw(keyRows + offset, there);
      value[a] = loadRaw(valueRows + offset, there);
    }
#pragma unroll
    for (int j = 0; j < QUERIES; j++) {
      float x[WIDTH], score[AHEAD], higher = peak[j];
#pragma unroll
      for (int i = 0; i < WIDTH / 4; i++) {
        const float4 four = queryTile[j][i][lane % SHARE];
        x[4 * i] = four.x, x[4 * i + 1] = four.y, x[4 * i + 2] = four.z, x[4 * i + 3] = four.w;
      }
#pragma unroll
      for (int a = 0; a < AHEAD; a++) {
        score[a] = 0.0f;
#pragma unroll
        for (int i = 0; i < WIDTH; i++) score[a] += x[i] * widen(key[a].v[i]);
#pragma unroll
        for (int distance = SHARE / 2; distance > 0; distance /= 2) {
          score[a] += __shfl_xor_sync(ALL, score[a], distance);
        }
        const int slot = base + a * STEP + place;
        if (slot < from[j] || to[j] < slot) score[a] = -INFINITE;
        higher = fmaxf(higher, score[a]);
      }
      const float keep = decay(peak[j], higher), floor = higher == -INFINITE ? 0.0f : higher;
      peak[j] = higher, total[j] *= keep;
#pragma unroll
      for (int i = 0; i < WIDTH; i++) mixed[j][i] *= keep;
#pragma unroll
      for (int a = 0; a < AHEAD; a++) {
        const float weight = exp2f(score[a] - floor);
        total[j] += weight;
#pragma unroll
        for (int i = 0; i < WIDTH; i++) mixed[j][i] += weight * widen(value[a].v[i]);
      }
    }
  }

  // The places of a warp, then the warps.
#pragma unroll
  for (int j = 0; j < QUERIES; j++) {
    float higher = peak[j];
#pragma unroll
    for (int distance = SHARE; distance < 32; distance *= 2) {
      higher = fmaxf(higher, __shfl_xor_sync(ALL, higher, distance));
    }
    const float keep = decay(peak[j], higher);
    total[j] *= keep;
#pragma unroll
    for (int i = 0; i < WIDTH; i++) mixed[j][i] *= keep;
#pragma unroll
    for (int distance = SHARE; distance < 32; distance *= 2) {
      total[j] += __shfl_xor_sync(ALL, total[j], distance);
#pragma unroll
      for (int i = 0; i < WIDTH; i++) mixed[j][i] += __shfl_xor_sync(ALL, mixed[j][i], distance);
    }
    if (lane < SHARE) {
#pragma unroll
      for (int i = 0; i < WIDTH; i++) mixtures.mixed[warp][j][lane * WIDTH + i] = mixed[j][i];
    }
    if (lane == 0) mixtures.peak[warp][j] = higher, mixtures.total[warp][j] = total[j];
  }
  __syncthreads();
  mixtures.write(partial, peaks, totals, count, headOf);
}
