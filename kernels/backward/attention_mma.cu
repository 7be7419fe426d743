// Gradients of attention on tensor cores, in bf16 (FlashAttention-2's scheme, without atomics).
//
//   w = exp(s − normalizer),  ds = w (dout v − delta) scale
//   dq = Σ ds k,  dk = Σ ds q,  dv = Σ w dout
//
// in, out   as in backward/attention.cu; D is a multiple of 16, 128 at most
// reference: the rule in core/ops/attention.ts; sums in float and in a fixed order, w and ds
// rounded to bf16 before they meet the other factor: 2^-7 of the largest gradient.
//
// A warp of the first kernel has 16 queries and walks tiles of slots; a warp of the second has 16
// slots and walks tiles of queries. Scores are computed twice, once by each kernel, so that nothing
// is added across blocks. With slots as rows, the result of one product is the left operand of the
// next without leaving the registers.
#include "common/attention.cuh"
#include "common/reduce.cuh"
#include "common/tiles.cuh"

constexpr int D = HEAD_DIM, WARPS = 4, THREADS = 32 * WARPS, SPAN = spanOf(D), STRIP = 16;
constexpr int ROWS = WARPS * STRIP;         // queries of a block, or slots
constexpr int SLOTS = 32;                   // slots of a tile of attention_queries_mma
constexpr int QUERIES = D <= 64 ? 32 : 16;  // queries of a product of attention_slots_mma
constexpr int ITEM = D <= 64 ? 64 : 16;     // queries of an item, which are loaded at once
static_assert(BF16 && D % 16 == 0 && D <= 128, "operands are 16 × 16, sums are in registers");

// What weights and slopes of a query need, and the slots that it sees.
struct Query {
  float normalizer, delta;  // the former in powers of two
  Range seen;
};

__device__ inline Query queryOf(const Gradients& in, bool text, int row, int k, int query) {
  Query found = {0.0f, 0.0f, {0, -1}};
  if (query >= in.a.queries()) return found;
  const long long head = in.a.head(row, k, query);
  found.normalizer = in.normalizer[head] * LOG2E, found.delta = in.delta[head];
  found.seen.to = in.a.M - 1;
  if (text) found.seen = visible(in.a, row, query);
  return found;
}

// w and ds / scale of a score and of dout v
__device__ inline void slopeOf(float& score, float& product, const Query& query, int slot,
                               float factor) {
  const bool seen = query.seen.has(slot);
  score = seen ? exp2f(score * factor - query.normalizer) : 0.0f;
  product = seen ? score * (product - query.delta) : 0.0f;
}

extern "C" __global__ void __launch_bounds__(32 * WARPS, 2)
    attention_queries_mma(Element* __restrict__ dq, const Element* __restrict__ dout,
                          const float* __restrict__ normalizer, const float* __restrict__ delta,
                          const Element* __restrict__ q, const Element* __restrict__ keys,
                          const Element* __restrict__ values, const int* __restrict__ first,
                          const int* __restrict__ last, const Element* __restrict__ prefixKeys,
                          const Element* __restrict__ prefixValues, int R, int rows, int B, int T,
                          int S, int K, int G, int M, float scale) {
  const int start = (gridDim.x - 1 - blockIdx.x) * ROWS, k = blockIdx.y, own = blockIdx.z;
  if (start >= G * T) return;
  const Attention a = {R, B, T, S, K, G, M, scale, first, last};
  Gradients in = {a, dout, q, keys, values, normalizer, delta};
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, pair = lane % 4 * 2;
  const int mine = start + warp * STRIP;
  __shared__ __align__(16) Half tile[2 * SLOTS * SPAN];
  static_assert(ROWS <= 2 * SLOTS, "queries fit the memory of keys and values");
  Half *const keyTile = tile, *const valueTile = tile + SLOTS * SPAN;

  const auto load = [&](unsigned(&operand)[D / 16][4], const Element* tensor, int row) {
    loadOperands<D, ROWS, THREADS>(operand, tile, tensor, start, G * T, [&](int query) {
      return a.head(row, k, query) * D;
    });
  };
  unsigned query[D / 16][4], upstream[D / 16][4];
  float sum[D / 8][4] = {};
  load(query, q, own);
  const Range all = visibleToAny(a, own, start, ROWS);
  for (int row = own; row < rows; row += R) {
    load(upstream, dout, row);
    for (int segment = 0; segment < 2; segment++) {
      const bool isText = segment == 1;
      in.keys = isText ? keys : prefixKeys, in.values = isText ? values : prefixValues;
      const Query of[2] = {queryOf(in, isText, row, k, mine + group),
                           queryOf(in, isText, row, k, mine + group + 8)};
      const long long slots = a.slots(isText, row, k) * D;
      const int end = isText ? all.to + 1 : M;
      const auto offsetOf = [](int slot) { return slot * D; };
      for (int begin = isText ? all.from : 0; begin < end; begin += SLOTS) {
        __syncthreads();
        loadRows<D, SLOTS, THREADS>(keyTile, in.keys + slots, begin, end, offsetOf);
        loadRows<D, SLOTS, THREADS>(valueTile, in.values + slots, begin, end, offsetOf);
        __syncthreads();
#pragma unroll 1
        for (int n = 0; n < SLOTS / 16; n++) {
          float score[2][4] = {}, product[2][4] = {};
#pragma unroll
          for (int d = 0; d < D / 16; d++) {
            unsigned operand[4];
            rightTransposed<SPAN>(operand, keyTile + n * 16 * SPAN + d * 16);
            multiply(score, query[d], operand);
            rightTransposed<SPAN>(operand, valueTile + n * 16 * SPAN + d * 16);
            multiply(product, upstream[d], operand);
          }
#pragma unroll
          for (int i = 0; i < 8; i++) {
            const int slot = begin + n * 16 + i / 4 * 8 + pair + i % 2;
            slopeOf(score[i / 4][i % 4], product[i / 4][i % 4], of[i % 4 / 2], slot, scale * LOG2E);
          }
          unsigned slope[4];
          asLeft(slope, product);
#pragma unroll
          for (int d = 0; d < D / 16; d++) {
            unsigned key[4];
            rightOperand<SPAN>(key, keyTile + n * 16 * SPAN + d * 16);
            multiply(&sum[2 * d], slope, key);
          }
        }
      }
    }
  }

#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int each = mine + group + half * 8;
    if (each >= G * T) continue;
    const long long at = a.head(own, k, each) * D;
#pragma unroll
    for (int d = 0; d < D / 8; d++) {
      *reinterpret_cast<unsigned*>(dq + at + d * 8 + pair) =
          packHalves(sum[d][2 * half] * scale, sum[d][2 * half + 1] * scale);
    }
  }
}

struct SlotMemory {
  Half keys[ROWS * SPAN];
  Half values[ROWS * SPAN];
  Half queries[ITEM * SPAN];
  Half upstream[ITEM * SPAN];
  Query of[ITEM];
};

// The part of an item that a thread loads, on its way from global to shared memory.
constexpr int PIECES = (ITEM * (D / 8) + THREADS - 1) / THREADS;

struct Fetched {
  Piece queries[PIECES], upstream[PIECES];
  Query of;

  // Calls use(i, query, d) for each piece of this thread: elements d … d + 7 of a query of the
  // item.
  template <class Use>
  __device__ static void eachPiece(Use use) {
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
      const int at = threadIdx.x + i * THREADS;
      if (at < ITEM * (D / 8)) use(i, at / (D / 8), at % (D / 8) * 8);
    }
  }

  __device__ void fetch(const Gradients& in, bool text, int row, int k, int start) {
    const Attention& a = in.a;
    eachPiece([&](int i, int from, int d) {
      const int query = start + from;
      queries[i] = upstream[i] = {};
      if (query >= a.queries()) return;
      queries[i] = *reinterpret_cast<const Piece*>(in.q + a.head(row % a.R, k, query) * D + d);
      upstream[i] = *reinterpret_cast<const Piece*>(in.dout + a.head(row, k, query) * D + d);
    });
    if (threadIdx.x < ITEM) of = queryOf(in, text, row, k, start + (int)threadIdx.x);
  }

  __device__ void place(SlotMemory& memory) const {
    eachPiece([&](int i, int query, int d) {
      *reinterpret_cast<Piece*>(memory.queries + query * SPAN + d) = queries[i];
      *reinterpret_cast<Piece*>(memory.upstream + query * SPAN + d) = upstream[i];
    });
    if (threadIdx.x < ITEM) memory.of[threadIdx.x] = of;
  }
};

// A warp has 16 of the ROWS slots of its block. An item is loaded while the one before it is
// computed.
extern "C" __global__ void __launch_bounds__(32 * WARPS, 2)
    attention_slots_mma(float* __restrict__ dkeys, float* __restrict__ dvalues,
                        const Element* __restrict__ dout, const float* __restrict__ normalizer,
                        const float* __restrict__ delta, const Element* __restrict__ q,
                        const Element* __restrict__ keys, const Element* __restrict__ values,
                        const int* __restrict__ first, const int* __restrict__ last, int R,
                        int rows, int B, int T, int S, int K, int G, int M, int chunks,
                        float scale) {
  const Attention a = {R, B, T, S, K, G, M, scale, first, last};
  const SlotTask task = slotTask(a, rows, chunks, ITEM);
  const int begin = blockIdx.x * ROWS, k = blockIdx.y;
  if (begin >= task.size) return;
  __shared__ __align__(16) SlotMemory memory;
  const Gradients in = {a, dout, q, keys, values, normalizer, delta};
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, pair = lane % 4 * 2;
  const int count = (a.queries() + ITEM - 1) / ITEM;
  float dkey[D / 8][4] = {}, dvalue[D / 8][4] = {};
  const long long slots = a.slots(task.text, task.firstRow, k) * D;
  const auto offsetOf = [](int slot) { return slot * D; };
  loadRows<D, ROWS, THREADS>(memory.keys, in.keys + slots, begin, task.size, offsetOf);
  loadRows<D, ROWS, THREADS>(memory.values, in.values + slots, begin, task.size, offsetOf);
  const auto rowOf = [&](int item) { return task.firstRow + item / count * task.rowStep; };
  // The next item, from one on, of which a query sees slots of the block: the same for all threads.
  const auto nextSeen = [&](int item) {
    for (; task.text && item <= task.items.to; item++) {
      const Range all = visibleToAny(a, rowOf(item), item % count * ITEM, ITEM);
      if (all.from < begin + ROWS && all.to >= begin) break;
    }
    return item;
  };
  Fetched fetched;
  int item = nextSeen(task.items.from);
  if (item <= task.items.to) fetched.fetch(in, task.text, rowOf(item), k, item % count * ITEM);
  while (item <= task.items.to) {
    __syncthreads();
    fetched.place(memory);
    __syncthreads();
    item = nextSeen(item + 1);
    if (item <= task.items.to) fetched.fetch(in, task.text, rowOf(item), k, item % count * ITEM);
#pragma unroll 1
    for (int from = 0; from < ITEM; from += QUERIES) {
      const Half *const queries = memory.queries + from * SPAN;
      const Half *const upstream = memory.upstream + from * SPAN;
      float score[QUERIES / 8][4] = {}, product[QUERIES / 8][4] = {};
#pragma unroll 2  // no more, or operands that are loaded ahead take the registers
      for (int d = 0; d < D / 16; d++) {
        unsigned key[4], value[4];
        leftOperand<SPAN>(key, memory.keys + warp * STRIP * SPAN + d * 16);
        leftOperand<SPAN>(value, memory.values + warp * STRIP * SPAN + d * 16);
#pragma unroll
        for (int n = 0; n < QUERIES / 16; n++) {
          unsigned operand[4];
          rightTransposed<SPAN>(operand, queries + n * 16 * SPAN + d * 16);
          multiply(&score[2 * n], key, operand);
          rightTransposed<SPAN>(operand, upstream + n * 16 * SPAN + d * 16);
          multiply(&product[2 * n], value, operand);
        }
      }
#pragma unroll
      for (int i = 0; i < QUERIES / 2; i++) {
        const Query& query = memory.of[from + i / 4 * 8 + pair + i % 2];
        const int slot = begin + warp * STRIP + group + i % 4 / 2 * 8;
        slopeOf(score[i / 4][i % 4], product[i / 4][i % 4], query, slot, a.scale * LOG2E);
      }
#pragma unroll
      for (int n = 0; n < QUERIES / 16; n++) {
        unsigned weight[4], slope[4];
        asLeft(weight, &score[2 * n]);
        asLeft(slope, &product[2 * n]);
#pragma unroll
        for (int d = 0; d < D / 16; d++) {
          unsigned operand[4];
          rightOperand<SPAN>(operand, upstream + n * 16 * SPAN + d * 16);
          multiply(&dvalue[2 * d], weight, operand);
          rightOperand<SPAN>(operand, queries + n * 16 * SPAN + d * 16);
          multiply(&dkey[2 * d], slope, operand);
        }
      }
    }
  }
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int slot = begin + warp * STRIP + group + half * 8;
    if (slot >= task.size) continue;
    const long long at = (((long long)blockIdx.z * K + k) * task.size + slot) * D + pair;
#pragma unroll
    for (int d = 0; d < D / 8; d++) {
      const float* key = &dkey[d][2 * half];
      const float* value = &dvalue[d][2 * half];
      dkeys[at + d * 8] = key[0] * scale, dkeys[at + d * 8 + 1] = key[1] * scale;
      dvalues[at + d * 8] = value[0], dvalues[at + d * 8 + 1] = value[1];
    }
  }
}
