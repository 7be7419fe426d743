// Gradients of attention on tensor cores, in bf16 (FlashAttention-2's scheme, without atomics).
//
//   w = exp(s − normalizer),  ds = w (dout v − delta) scale
//   dq = Σ ds k,  dk = Σ ds q,  dv = Σ w dout
//
// in   as in backward/attention.cu; D is a multiple of 16, 128 at most
// out  attention_queries_mma: dq [R, T, H, D]; attention_keys_mma: dkeys, dvalues [R, K, S, D];
//      attention_prefix_mma: partialKeys, partialValues [chunks, P, K, M, D] f32
// reference: the rule in core/ops/attention.ts; sums in float and in a fixed order, w and ds
// rounded to bf16 before they meet the other factor: 2^-7 of the largest gradient.
//
// A warp of the first kernel has 16 queries and walks tiles of slots; a warp of the others has 16
// slots and walks items, which are tiles of queries of one attention row after the other. Scores
// are computed twice, once by each kernel, so that nothing is added across blocks. With slots as
// rows, what one product leaves in registers is the left operand of the next. Where streams share
// text (R is B), the sums over streams are in the walk; and the prefix, which all queries see but
// which has few slots, is cut into chunks of items that are added afterwards.
#include "common/reduce.cuh"
#include "common/tiles.cuh"
#include "common/types.cuh"

constexpr int D = HEAD_DIM, WARPS = 4, THREADS = 32 * WARPS, SPAN = spanOf(D), STRIP = 16;
constexpr int ROWS = WARPS * STRIP;         // queries of a block, or slots
constexpr int SLOTS = D <= 64 ? 64 : 32;    // slots of a tile of attention_queries_mma
constexpr int QUERIES = D <= 64 ? 32 : 16;  // queries of an item of the others
constexpr float LOG2E = 1.44269504f;
static_assert(BF16 && D % 16 == 0 && D <= 128, "operands are 16 × 16, sums are in registers");

// What all three kernels read.
struct Inputs {
  const Element *dout, *q, *keys, *values;  // keys and values of the text, or of the prefix
  const float *normalizer, *delta;
  const int *first, *last;  // last is null for the prefix
  int R, B, T, size, K, G;  // size: slots of a head
  float scale;
};

// What a query brings to its scores besides its numbers; slots from … to are seen.
struct __align__(16) Column {
  float normalizer, delta;  // the former in powers of two
  int from, to;
};

__device__ inline Column columnOf(const Inputs& in, int row, int k, int query) {
  if (query >= in.G * in.T) return {INFINITE, 0.0f, 0, -1};
  const int t = query / in.G, at = row % in.B * in.T + t;
  const long long head = ((long long)row * in.T + t) * in.K * in.G + k * in.G + query % in.G;
  return {in.normalizer[head] * LOG2E, in.delta[head], in.last && in.first ? in.first[at] : 0,
          in.last ? min(in.last[at], in.size - 1) : in.size - 1};
}

// w and ds / scale of a score and of dout v
__device__ inline void slopeOf(float& score, float& product, const Column& column, int slot,
                               float factor) {
  const bool seen = column.from <= slot && slot <= column.to;
  score = seen ? exp2f(score * factor - column.normalizer) : 0.0f;
  product = seen ? score * (product - column.delta) : 0.0f;
}

struct SlotStage {
  Half keys[SLOTS * SPAN];
  Half values[SLOTS * SPAN];
};

extern "C" __global__ void __launch_bounds__(32 * WARPS, 2)
    attention_queries_mma(Element* __restrict__ dq, const Element* __restrict__ dout,
                          const float* __restrict__ normalizer, const float* __restrict__ delta,
                          const Element* __restrict__ q, const Element* __restrict__ keys,
                          const Element* __restrict__ values, const int* __restrict__ first,
                          const int* __restrict__ last, const Element* __restrict__ prefixKeys,
                          const Element* __restrict__ prefixValues, int R, int rows, int B, int T,
                          int S, int K, int G, int M, float scale) {
  takeTurn();
  const int start = (gridDim.x - 1 - blockIdx.x) * ROWS, k = blockIdx.y, own = blockIdx.z;
  if (start >= G * T) return;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, pair = lane % 4 * 2;
  const int mine = start + warp * STRIP;
  const Inputs text = {dout, q, keys, values, normalizer, delta, first, last,
                       R,    B, T,    S,      K,          G,     scale};
  __shared__ __align__(16) SlotStage stages[2];
  __shared__ Column columns[ROWS];
  __shared__ int lowestOf[WARPS], highestOf[WARPS];
  static_assert(ROWS <= 2 * SLOTS, "queries fit into one stage");

  // Slots of the text that queries of the warp see, and of the block.
  const Column sample = columnOf(text, own, k, min(mine + lane % STRIP, G * T - 1));
  const int from = __reduce_min_sync(ALL, max(sample.from, 0));
  const int to = __reduce_max_sync(ALL, sample.to);
  if (lane == 0) lowestOf[warp] = from, highestOf[warp] = to;
  __syncthreads();
  int lowest = lowestOf[0], highest = highestOf[0];
  for (int i = 1; i < WARPS; i++) {
    lowest = min(lowest, lowestOf[i]), highest = max(highest, highestOf[i]);
  }
  const int prefixTiles = (M + SLOTS - 1) / SLOTS;
  const int tiles = prefixTiles + max(0, highest - lowest + SLOTS) / SLOTS;

  unsigned query[D / 16][4], upstream[D / 16][4];
  float sum[D / 8][4] = {};
  const float factor = scale * LOG2E;
  for (int row = own; row < rows; row += R) {
    const auto beginOf = [&](int tile) {
      return tile < prefixTiles ? tile * SLOTS : lowest + (tile - prefixTiles) * SLOTS;
    };
    const auto copyTile = [&](int tile) {
      const bool isText = tile >= prefixTiles;
      const long long head = (long long)(isText ? own : row / B) * K + k;
      const long long at = head * (isText ? S : M) * D;
      const int begin = beginOf(tile), end = isText ? highest + 1 : M;
      SlotStage& stage = stages[tile % 2];
      copyRows<D, SLOTS, THREADS>(stage.keys, (isText ? keys : prefixKeys) + at, begin, end);
      copyRows<D, SLOTS, THREADS>(stage.values, (isText ? values : prefixValues) + at, begin, end);
    };
    const auto readStrip = [&](unsigned(&operand)[D / 16][4], const Element* tensor, int of) {
      __syncthreads();
      copyQueries<D, ROWS, THREADS>(stages[1].keys, tensor + (long long)of * T * K * G * D, start,
                                    G * T, k, K, G);
      cp_async_commit();
      cp_async_wait<0>();
      __syncthreads();
#pragma unroll
      for (int d = 0; d < D / 16; d++) {
        leftOperand<SPAN>(operand[d], stages[1].keys + warp * STRIP * SPAN + d * 16);
      }
    };
    if (row == own) readStrip(query, q, own);
    readStrip(upstream, dout, row);
    if (threadIdx.x < ROWS) columns[threadIdx.x] = columnOf(text, row, k, start + threadIdx.x);
    if (tiles > 0) copyTile(0);
    cp_async_commit();

    for (int tile = 0; tile < tiles; tile++) {
      cp_async_wait<0>();
      __syncthreads();  // the tile is there, and the stage of the next one is no longer read
      if (tile + 1 < tiles) copyTile(tile + 1);
      cp_async_commit();
      const bool isText = tile >= prefixTiles;
      const int begin = beginOf(tile);
      if (mine >= G * T || (isText && (begin + SLOTS <= from || to < begin))) continue;
      const SlotStage& stage = stages[tile % 2];
#pragma unroll 1
      for (int n = 0; n < SLOTS / 16; n++) {
        float score[2][4] = {}, product[2][4] = {};
#pragma unroll
        for (int d = 0; d < D / 16; d++) {
          unsigned operand[4];
          rightTransposed<SPAN>(operand, stage.keys + n * 16 * SPAN + d * 16);
          multiply(score, query[d], operand);
          rightTransposed<SPAN>(operand, stage.values + n * 16 * SPAN + d * 16);
          multiply(product, upstream[d], operand);
        }
#pragma unroll
        for (int i = 0; i < 8; i++) {
          Column column = columns[warp * STRIP + group + i % 4 / 2 * 8];
          if (!isText) column.from = 0, column.to = column.normalizer < INFINITE ? M - 1 : -1;
          const int slot = begin + n * 16 + i / 4 * 8 + pair + i % 2;
          slopeOf(score[i / 4][i % 4], product[i / 4][i % 4], column, slot, factor);
        }
        unsigned slope[4];
        asLeft(slope, product);
#pragma unroll
        for (int d = 0; d < D / 16; d++) {
          unsigned key[4];
          rightOperand<SPAN>(key, stage.keys + n * 16 * SPAN + d * 16);
          multiply(&sum[2 * d], slope, key);
        }
      }
    }
  }

#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int each = mine + group + half * 8;
    if (each >= G * T) continue;
    const long long at = ((long long)own * T + each / G) * K * G + k * G + each % G;
#pragma unroll
    for (int d = 0; d < D / 8; d++) {
      *reinterpret_cast<unsigned*>(dq + at * D + d * 8 + pair) =
          packHalves(sum[d][2 * half] * scale, sum[d][2 * half + 1] * scale);
    }
  }
}

struct QueryStage {
  Half queries[QUERIES * SPAN];
  Half upstream[QUERIES * SPAN];
};

struct SlotMemory {
  Half keys[ROWS * SPAN];
  QueryStage stages[2];
  Column columns[2][QUERIES];
};
static_assert(ROWS <= 4 * QUERIES, "values fit into the stages");

// The items of a walk, from next on those of attention rows firstRow, firstRow + rowStep, …
struct Walk {
  int next, end, firstRow, rowStep;
  unsigned found;  // items of the 32 before `next` which are still to come

  __device__ int tiles(const Inputs& in) const { return (in.G * in.T + QUERIES - 1) / QUERIES; }
  __device__ int rowOf(const Inputs& in, int item) const {
    return firstRow + item / tiles(in) * rowStep;
  }
  __device__ int startOf(const Inputs& in, int item) const { return item % tiles(in) * QUERIES; }

  // Whether a query of an item sees any of the slots from begin on
  __device__ bool sees(const Inputs& in, int item, int begin) const {
    if (item >= end) return false;
    if (!in.last) return true;
    const int start = startOf(in, item), at = rowOf(in, item) % in.B * in.T;
    bool seen = false;
    for (int t = start / in.G; t < in.T && t * in.G < start + QUERIES; t++) {
      const int from = in.first ? in.first[at + t] : 0;
      seen |= max(from, begin) <= min(in.last[at + t], begin + ROWS - 1);
    }
    return seen;
  }

  // The next item that counts, or `end`; every lane looks at one of 32.
  __device__ int take(const Inputs& in, int begin) {
    while (!found) {
      if (next >= end) return end;
      found = __ballot_sync(ALL, sees(in, next + threadIdx.x % 32, begin));
      next += 32;
    }
    const int item = next - 32 + __ffs(found) - 1;
    found &= found - 1;
    return item;
  }
};

// Sums over the items of a walk for 16 slots of the warp, of ROWS slots from begin on.
__device__ inline void slotGradients(SlotMemory& memory, const Inputs& in, Walk walk, int k,
                                     int begin, float (&dkey)[D / 8][4],
                                     float (&dvalue)[D / 8][4]) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, pair = lane % 4 * 2;
  const long long head = ((long long)(in.last ? walk.firstRow : walk.firstRow / in.B) * in.K + k) *
                         in.size * D;
  copyRows<D, ROWS, THREADS>(memory.keys, in.keys + head, begin, in.size);
  Half* valueTile = reinterpret_cast<Half*>(memory.stages);
  copyRows<D, ROWS, THREADS>(valueTile, in.values + head, begin, in.size);
  cp_async_commit();
  cp_async_wait<0>();
  __syncthreads();
  unsigned value[D / 16][4];
#pragma unroll
  for (int d = 0; d < D / 16; d++) {
    leftOperand<SPAN>(value[d], valueTile + warp * STRIP * SPAN + d * 16);
  }
  __syncthreads();

  const auto copyItem = [&](int item, int at) {
    const long long width = (long long)in.T * in.K * in.G * D;
    const int row = walk.rowOf(in, item), start = walk.startOf(in, item), end = in.G * in.T;
    QueryStage& stage = memory.stages[at];
    copyQueries<D, QUERIES, THREADS>(stage.queries, in.q + row % in.R * width, start, end, k, in.K,
                                     in.G);
    copyQueries<D, QUERIES, THREADS>(stage.upstream, in.dout + row * width, start, end, k, in.K,
                                     in.G);
  };
  const auto columnFor = [&](int item) {
    return columnOf(in, walk.rowOf(in, item), k, walk.startOf(in, item) + (int)threadIdx.x);
  };
  const float factor = in.scale * LOG2E;
  const bool working = begin + warp * STRIP < in.size;
  int item = walk.take(in, begin);
  if (item < walk.end) {
    copyItem(item, 0);
    if (threadIdx.x < QUERIES) memory.columns[0][threadIdx.x] = columnFor(item);
  }
  cp_async_commit();
  for (int at = 0; item < walk.end; at ^= 1) {
    const int following = walk.take(in, begin);
    cp_async_wait<0>();
    __syncthreads();  // the item is there, and the stage of the next one is no longer read
    Column next = {};
    if (following < walk.end) {
      copyItem(following, at ^ 1);
      if (threadIdx.x < QUERIES) next = columnFor(following);
    }
    cp_async_commit();
    const QueryStage& stage = memory.stages[at];
    if (working) {
      float score[QUERIES / 8][4] = {}, product[QUERIES / 8][4] = {};
#pragma unroll
      for (int d = 0; d < D / 16; d++) {
        unsigned key[4];
        leftOperand<SPAN>(key, memory.keys + warp * STRIP * SPAN + d * 16);
#pragma unroll
        for (int n = 0; n < QUERIES / 16; n++) {
          unsigned operand[4];
          rightTransposed<SPAN>(operand, stage.queries + n * 16 * SPAN + d * 16);
          multiply(&score[2 * n], key, operand);
          rightTransposed<SPAN>(operand, stage.upstream + n * 16 * SPAN + d * 16);
          multiply(&product[2 * n], value[d], operand);
        }
      }
#pragma unroll
      for (int n = 0; n < QUERIES / 8; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
          const Column& column = memory.columns[at][n * 8 + pair + i % 2];
          const int slot = begin + warp * STRIP + group + i / 2 * 8;
          slopeOf(score[n][i], product[n][i], column, slot, factor);
        }
      }
#pragma unroll
      for (int n = 0; n < QUERIES / 16; n++) {
        unsigned weight[4], slope[4];
        asLeft(weight, &score[2 * n]);
        asLeft(slope, &product[2 * n]);
#pragma unroll
        for (int d = 0; d < D / 16; d++) {
          unsigned operand[4];
          rightOperand<SPAN>(operand, stage.upstream + n * 16 * SPAN + d * 16);
          multiply(&dvalue[2 * d], weight, operand);
          rightOperand<SPAN>(operand, stage.queries + n * 16 * SPAN + d * 16);
          multiply(&dkey[2 * d], slope, operand);
        }
      }
    }
    if (threadIdx.x < QUERIES) memory.columns[at ^ 1][threadIdx.x] = next;
    item = following;
  }
}

extern "C" __global__ void __launch_bounds__(32 * WARPS, 2)
    attention_keys_mma(Element* __restrict__ dkeys, Element* __restrict__ dvalues,
                       const Element* __restrict__ dout, const float* __restrict__ normalizer,
                       const float* __restrict__ delta, const Element* __restrict__ q,
                       const Element* __restrict__ keys, const Element* __restrict__ values,
                       const int* __restrict__ first, const int* __restrict__ last, int R,
                       int rows, int B, int T, int S, int K, int G, float scale) {
  takeTurn();
  const int begin = blockIdx.x * ROWS, k = blockIdx.y, own = blockIdx.z;
  if (begin >= S) return;
  __shared__ __align__(16) SlotMemory memory;
  const Inputs in = {dout, q, keys, values, normalizer, delta, first, last,
                     R,    B, T,    S,      K,          G,     scale};
  Walk walk = {0, 0, own, R, 0};
  walk.end = walk.tiles(in) * (rows / R);
  float dkey[D / 8][4] = {}, dvalue[D / 8][4] = {};
  slotGradients(memory, in, walk, k, begin, dkey, dvalue);
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int slot = begin + threadIdx.x / 32 * STRIP + lane / 4 + half * 8;
    if (slot >= S) continue;
    const long long at = (((long long)own * K + k) * S + slot) * D + lane % 4 * 2;
#pragma unroll
    for (int d = 0; d < D / 8; d++) {
      const float *key = &dkey[d][2 * half], *value = &dvalue[d][2 * half];
      *reinterpret_cast<unsigned*>(dkeys + at + d * 8) = packHalves(key[0] * scale, key[1] * scale);
      *reinterpret_cast<unsigned*>(dvalues + at + d * 8) = packHalves(value[0], value[1]);
    }
  }
}

extern "C" __global__ void __launch_bounds__(32 * WARPS, 2)
    attention_prefix_mma(float* __restrict__ partialKeys, float* __restrict__ partialValues,
                         const Element* __restrict__ dout, const float* __restrict__ normalizer,
                         const float* __restrict__ delta, const Element* __restrict__ q,
                         const Element* __restrict__ prefixKeys,
                         const Element* __restrict__ prefixValues, int R, int P, int B, int T,
                         int K, int G, int M, int chunks, float scale) {
  takeTurn();
  const int begin = blockIdx.x * ROWS, k = blockIdx.y, stream = blockIdx.z % P;
  if (begin >= M) return;
  const int chunk = blockIdx.z / P;
  __shared__ __align__(16) SlotMemory memory;
  const Inputs in = {dout,  q,       prefixKeys, prefixValues, normalizer, delta,
                     nullptr, nullptr, R,        B,            T,          M,
                     K,     G,       scale};
  Walk walk = {0, 0, stream * B, 1, 0};
  const int items = walk.tiles(in) * B, size = (items + chunks - 1) / chunks;
  walk.next = chunk * size, walk.end = min(items, walk.next + size);
  float dkey[D / 8][4] = {}, dvalue[D / 8][4] = {};
  slotGradients(memory, in, walk, k, begin, dkey, dvalue);
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int slot = begin + threadIdx.x / 32 * STRIP + lane / 4 + half * 8;
    if (slot >= M) continue;
    const long long at = (((long long)blockIdx.z * K + k) * M + slot) * D + lane % 4 * 2;
#pragma unroll
    for (int d = 0; d < D / 8; d++) {
      const float *key = &dkey[d][2 * half], *value = &dvalue[d][2 * half];
      *reinterpret_cast<float2*>(partialKeys + at + d * 8) = {key[0] * scale, key[1] * scale};
      *reinterpret_cast<float2*>(partialValues + at + d * 8) = {value[0], value[1]};
    }
  }
}
