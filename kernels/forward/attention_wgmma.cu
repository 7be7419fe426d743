// attention_wgmma: forward/attention_mma.cu for Hopper, whose copies and products run by themselves
// (FlashAttention-3's scheme).
//
//   out = softmax(scale q [prefix_k | k]ᵀ) [prefix_v | v]
//
// in, out, saved for backward: as in forward/attention.cu; D is 64 or 128; keys and values as maps
// of [rows·K, slots, D] with boxes of KEYS slots and 64 columns
// reference: core/ops/attention.ts; rounding as in forward/attention_mma.cu.
//
// A block has QUERIES queries of one key head, G heads of a token side by side, 64 for each of two
// warpgroups; a third one copies tiles of KEYS slots ahead of them, first the prefix, then the text
// from the first slot any of them sees to the last. While the values of one tile are mixed, the
// scores of the next become weights. A copy brings zeros for what is behind the last slot, but
// slots that no query sees yet may hold NaN, and 0 · NaN is NaN; so the values of the last tile
// that are in no query's sight are overwritten with zeros.
#include "common/hopper.cuh"
#include "common/reduce.cuh"
#include "common/tiles.cuh"
#include "common/types.cuh"

constexpr int D = HEAD_DIM, THREADS = 384, GROUP = 128, CONSUMERS = 2;
constexpr int STRIP = 64, QUERIES = CONSUMERS * STRIP, KEYS = 128, STAGES = 3;
constexpr int COLUMNS = 64, BOXES = D / COLUMNS;
constexpr float LOG2E = 1.44269504f;
constexpr int NANOSECONDS = 20000, TRIES = 1 << 20;  // 20 seconds, if a try takes its time
static_assert(BF16 && (D == 64 || D == 128), "heads are one or two boxes wide");

typedef Half Box[KEYS * COLUMNS];

struct alignas(1024) Stage {
  Box keys[BOXES];
  Box values[BOXES];
};

// All of dynamic shared memory. A stage is full when its bytes are there, and empty when every warp
// that reads it has arrived.
struct Shared {
  Stage stages[STAGES];
  Barrier full[STAGES], empty[STAGES];
};

// The slots that some queries see: all of them see what is between `latest` and `earliest`.
struct Range {
  int lowest, latest, earliest, highest;
};

__device__ inline Range warpRange(Range each) {
  return {__reduce_min_sync(ALL, each.lowest), __reduce_max_sync(ALL, each.latest),
          __reduce_min_sync(ALL, each.earliest), __reduce_max_sync(ALL, each.highest)};
}

// Phase number `phase` has ended. A copy that never comes is a fault: a kernel that waits for ever
// would end the process without a message.
__device__ inline void waitFor(Barrier* barrier, int phase) {
  for (int tries = 0; !mbarrier_try_wait_parity(barrier, phase % 2, NANOSECONDS); tries++) {
    if (tries == TRIES) fault();
  }
}

// Zeros from a row on, by all consumers; the swizzle only moves bytes within a row.
__device__ inline void clearRows(Box& box, int begin) {
  for (int i = begin * COLUMNS / 8 + threadIdx.x; i < KEYS * COLUMNS / 8;
       i += CONSUMERS * GROUP) {
    reinterpret_cast<uint4*>(box)[i] = make_uint4(0, 0, 0, 0);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    attention_wgmma(Element* __restrict__ out, float* __restrict__ normalizer,
                    const Element* __restrict__ q, const __grid_constant__ TensorMap keys,
                    const __grid_constant__ TensorMap values, const int* __restrict__ first,
                    const int* __restrict__ last, const __grid_constant__ TensorMap prefixKeys,
                    const __grid_constant__ TensorMap prefixValues, int R, int B, int T, int S,
                    int K, int G, int M, float scale) {
  takeTurn();
  const int start = (gridDim.x - 1 - blockIdx.x) * QUERIES, k = blockIdx.y, row = blockIdx.z;
  if (start >= G * T) return;
  const int lane = threadIdx.x % 32, group = threadIdx.x / GROUP;
  const int b = row % B, own = row % R, stream = row / B, H = K * G;
  Shared& shared = *reinterpret_cast<Shared*>(dynamicShared());

  // Every warp finds out for itself what the queries of each group see; queries behind the end see
  // what the last one sees, and are not written.
  const auto token = [&](int query) { return b * T + min(query, G * T - 1) / G; };
  const auto rangeOf = [&](int query) {
    const int one = token(query + lane), other = token(query + 32 + lane);
    const int from[2] = {first ? max(first[one], 0) : 0, first ? max(first[other], 0) : 0};
    const int to[2] = {min(last[one], S - 1), min(last[other], S - 1)};
    return warpRange({min(from[0], from[1]), max(from[0], from[1]), min(to[0], to[1]),
                      max(to[0], to[1])});
  };
  const Range front = rangeOf(start), back = rangeOf(start + STRIP);
  const int lowest = min(front.lowest, back.lowest), highest = max(front.highest, back.highest);
  const int prefixTiles = (M + KEYS - 1) / KEYS;
  const int tiles = prefixTiles + max(0, highest - lowest + KEYS) / KEYS;
  const auto beginOf = [&](int tile) {
    return tile < prefixTiles ? tile * KEYS : lowest + (tile - prefixTiles) * KEYS;
  };

  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; stage++) {
      mbarrier_init(&shared.full[stage], 1);
      mbarrier_init(&shared.empty[stage], CONSUMERS * GROUP / 32);
    }
    fence_mbarrier_init();
    fence_proxy_async();
  }
  __syncthreads();

  if (group == CONSUMERS) {
    setmaxnreg_dec<24>();
    if (threadIdx.x % GROUP != 0) return;
    for (int tile = 0; tile < tiles; tile++) {
      const bool text = tile >= prefixTiles;
      const int begin = beginOf(tile), head = (text ? own : stream) * K + k;
      Stage& stage = shared.stages[tile % STAGES];
      Barrier* full = &shared.full[tile % STAGES];
      if (tile >= STAGES) waitFor(&shared.empty[tile % STAGES], tile / STAGES - 1);
      mbarrier_arrive_expect_tx(full, sizeof(Stage));
      for (int i = 0; i < BOXES; i++) {
        const int x = i * COLUMNS;
        cp_async_bulk_tensor_3d(stage.keys[i], text ? keys : prefixKeys, x, begin, head, full);
        cp_async_bulk_tensor_3d(stage.values[i], text ? values : prefixValues, x, begin, head,
                                full);
      }
    }
    return;
  }

  setmaxnreg_inc<240>();
  const int pair = lane % 4 * 2, mine = start + group * STRIP;
  const int upper = mine + threadIdx.x % GROUP / 32 * 16 + lane / 4;  // and eight further
  const Range range = group == 0 ? front : back;
  unsigned query[D / 16][4];
  int from[2], to[2];
  float peak[2], total[2] = {}, mixed[BOXES][COLUMNS / 2] = {};
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int each = min(upper + half * 8, G * T - 1), at = b * T + each / G;
    from[half] = first ? first[at] : 0, to[half] = min(last[at], S - 1);
    peak[half] = -INFINITE;
    const long long head = ((long long)own * T + each / G) * H + k * G + each % G;
    const unsigned* pairs = reinterpret_cast<const unsigned*>(q + head * D + pair);
#pragma unroll
    for (int d = 0; d < D / 16; d++) {
      query[d][half] = pairs[d * 8], query[d][2 + half] = pairs[d * 8 + 4];
    }
  }
#pragma unroll
  for (int d = 0; d < D / 16; d++) keepInPlace(query[d]);

  const auto isText = [&](int tile) { return tile >= prefixTiles; };
  const auto isSeen = [&](int tile) {
    const int begin = beginOf(tile);
    const bool hidden = isText(tile) && (begin + KEYS <= range.lowest || range.highest < begin);
    return tile < tiles && mine < G * T && !hidden;
  };
  // Waits for a tile; the last one is brought in order by all consumers together.
  const auto take = [&](int tile) {
    waitFor(&shared.full[tile % STAGES], tile / STAGES);
    __syncwarp();
    const int begin = beginOf(tile);
    if (!isText(tile) || highest + 1 >= min(begin + KEYS, S)) return;
    Stage& stage = shared.stages[tile % STAGES];
    for (int i = 0; i < BOXES; i++) clearRows(stage.values[i], highest + 1 - begin);
    fence_proxy_async();
    bar_sync(1, CONSUMERS * GROUP);
  };
  const auto release = [&](int tile) {
    if (lane == 0) mbarrier_arrive(&shared.empty[tile % STAGES]);
  };

  const float factor = scale * LOG2E;
  float score[KEYS / 2], keep[2];
  unsigned weight[KEYS / 16][4];
  // score = query keysᵀ, under way as a group
  const auto startScores = [&](int tile) {
#pragma unroll
    for (int d = 0; d < D / 16; d++) {
      const Half* part = shared.stages[tile % STAGES].keys[d / 4] + d % 4 * 16;
      wgmma_m64n128k16_bf16(score, query[d], matrix_descriptor(part), d > 0);
    }
    wgmma_commit();
  };
  // mixed += weight values, under way as a group
  const auto startMixing = [&](int tile) {
#pragma unroll
    for (int n = 0; n < KEYS / 16; n++) {
#pragma unroll
      for (int i = 0; i < BOXES; i++) {
        const Half* part = shared.stages[tile % STAGES].values[i] + n * 16 * COLUMNS;
        wgmma_m64n64k16_bf16<true>(mixed[i], weight[n], matrix_descriptor(part), true);
      }
    }
    wgmma_commit();
  };
  // From scores to weights, and by what the sums so far have to be multiplied.
  const auto weigh = [&](int tile) {
    keepInPlace(score);
    const bool text = isText(tile);
    const int begin = beginOf(tile), end = begin + KEYS;
    const bool whole = text ? range.latest <= begin && end - 1 <= range.earliest : end <= M;
#pragma unroll
    for (int half = 0; half < 2; half++) {
      if (!whole) {
        const int low = text ? from[half] : 0, high = text ? to[half] : M - 1;
#pragma unroll
        for (int i = 0; i < KEYS / 4; i++) {
          const int slot = begin + i / 2 * 8 + pair + i % 2;
          float& each = score[i / 2 * 4 + 2 * half + i % 2];
          each = low <= slot && slot <= high ? each : -INFINITE;
        }
      }
      float higher = peak[half];
#pragma unroll
      for (int i = 0; i < KEYS / 4; i++) {
        higher = fmaxf(higher, score[i / 2 * 4 + 2 * half + i % 2]);
      }
      higher = fmaxf(higher, __shfl_xor_sync(ALL, higher, 1));
      higher = fmaxf(higher, __shfl_xor_sync(ALL, higher, 2));
      const float base = higher == -INFINITE ? 0.0f : higher * factor;
      keep[half] = ex2_approx(peak[half] * factor - base);
      float sum = 0.0f;
#pragma unroll
      for (int i = 0; i < KEYS / 4; i++) {
        float& each = score[i / 2 * 4 + 2 * half + i % 2];
        each = ex2_approx(each * factor - base);  // from here on its weight
        sum += each;
      }
      total[half] = total[half] * keep[half] + sum;
      peak[half] = higher;
    }
  };
  // When no product is under way: makes registers ready for the next ones.
  const auto settle = [&] {
#pragma unroll
    for (int i = 0; i < BOXES; i++) {
      keepInPlace(mixed[i]);
#pragma unroll
      for (int j = 0; j < COLUMNS / 2; j++) mixed[i][j] *= keep[j / 2 % 2];
      keepInPlace(mixed[i]);
    }
#pragma unroll
    for (int n = 0; n < KEYS / 16; n++) {
#pragma unroll
      for (int i = 0; i < 4; i++) {
        weight[n][i] = cvt_rn_bf16x2(score[n * 8 + 2 * i], score[n * 8 + 2 * i + 1]);
      }
      keepInPlace(weight[n]);
    }
  };

  for (int tile = 0; tile < tiles; tile++) {
    take(tile);
    if (isSeen(tile)) {
      wgmma_fence();
      startScores(tile);
      wgmma_wait<0>();
      weigh(tile);
      settle();
      for (; isSeen(tile + 1); tile++) {
        take(tile + 1);
        wgmma_fence();
        startScores(tile + 1);
        startMixing(tile);
        wgmma_wait<1>();
        weigh(tile + 1);  // while the values of the tile before are mixed
        wgmma_wait<0>();
        release(tile);
        settle();
      }
      wgmma_fence();
      startMixing(tile);
      wgmma_wait<0>();
#pragma unroll
      for (int i = 0; i < BOXES; i++) keepInPlace(mixed[i]);
    }
    release(tile);
  }

#pragma unroll
  for (int half = 0; half < 2; half++) {
    float sum = total[half];
    sum += __shfl_xor_sync(ALL, sum, 1);
    sum += __shfl_xor_sync(ALL, sum, 2);
    const int each = upper + half * 8;
    if (each >= G * T) continue;
    const long long at = ((long long)row * T + each / G) * H + k * G + each % G;
    const float inverse = sum > 0.0f ? 1.0f / sum : 0.0f;
#pragma unroll
    for (int j = 0; j < D / 8; j++) {
      const float* pairOf = &mixed[j / 8][j % 8 * 4 + 2 * half];
      *reinterpret_cast<unsigned*>(out + at * D + j * 8 + pair) =
          packHalves(pairOf[0] * inverse, pairOf[1] * inverse);
    }
    if (normalizer && lane % 4 == 0) normalizer[at] = peak[half] * scale + logf(sum);
  }
}
