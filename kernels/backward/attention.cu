// Gradients of attention, recomputing weights by tiles. With s = scale q k, D = Σ dout out:
//
//   w = exp(s − normalizer),  ds = w (dout v − D) scale
//   dq = Σ ds k,  dk = Σ ds q,  dv = Σ w dout
//
// in   dout [P·B, T, H·D], normalizer [P·B, T, H] f32 as the forward pass saved it, delta = D
//      [P·B, T, H] f32 of backward/attention_delta.cu, and the inputs of forward/attention.cu
// out  attention_queries: dq [R, T, H, D]; attention_keys: dkeys, dvalues [R, K, S, D];
//      attention_prefix: partialKeys, partialValues [chunks, P, K, M, D] f32
// reference: the rule in core/ops/attention.ts; float inside, every sum in a fixed order.
//
// Where R is B (layer 0), a gradient of shared text is summed over the streams inside one block;
// that of a prefix over the B rows of its stream. The prefix has few slots and sums over all
// tokens, so these are cut into chunks, and the sums of the chunks added afterwards.
#include "common/reduce.cuh"
#include "common/types.cuh"

constexpr int D = HEAD_DIM, THREADS = 128, TILE = 16, SPAN = D + 4;
constexpr int SHARE = THREADS / TILE;  // threads that share one row of a tile
constexpr int PARTS = (D + SHARE - 1) / SHARE;
// Blocks per processor. Said outright, since the compiler else spills to fit one more.
constexpr int BLOCKS = 4;
static_assert(D % 4 == 0, "heads are read four elements at a time");

// What all three kernels read.
struct Inputs {
  const Element *dout, *q, *keys, *values, *prefixKeys, *prefixValues;
  const float *normalizer, *delta;
  const int *first, *last;
  int R, B, T, S, K, G, M;
  float scale;
};

struct Tiles {
  float query[TILE][SPAN];
  float upstream[TILE][SPAN];
  float key[TILE][SPAN];
  float value[TILE][SPAN];
  float weight[TILE][TILE + 1];  // [query, slot]
  float slope[TILE][TILE + 1];   // ds
};

__device__ inline long long headIndex(const Inputs& in, int row, int k, int query) {
  return ((long long)row * in.T + query / in.G) * in.K * in.G + k * in.G + query % in.G;
}

// TILE queries of one key head of attention row `row`, and the gradients of their outputs
__device__ inline void loadQueries(Tiles& tiles, const Inputs& in, int row, int k, int start) {
  for (int i = threadIdx.x; i < TILE * D; i += THREADS) {
    const int query = start + i / D, d = i % D;
    const bool there = query < in.G * in.T;
    const long long own = there ? headIndex(in, row % in.R, k, query) : 0;
    const long long full = there ? headIndex(in, row, k, query) : 0;
    tiles.query[i / D][d] = there ? widen(in.q[own * D + d]) : 0.0f;
    tiles.upstream[i / D][d] = there ? widen(in.dout[full * D + d]) : 0.0f;
  }
}

// TILE slots of the text or the prefix of attention row `row`
__device__ inline void loadSlots(Tiles& tiles, const Inputs& in, bool text, int row, int k,
                                 int begin) {
  const int size = text ? in.S : in.M;
  const long long head = ((long long)(text ? row % in.R : row / in.B) * in.K + k) * size;
  const Element* keys = text ? in.keys : in.prefixKeys;
  const Element* values = text ? in.values : in.prefixValues;
  for (int i = threadIdx.x; i < TILE * D; i += THREADS) {
    const int slot = begin + i / D, d = i % D;
    const bool there = slot < size;
    const long long at = (head + slot) * D + d;
    tiles.key[i / D][d] = there ? widen(keys[at]) : 0.0f;
    tiles.value[i / D][d] = there ? widen(values[at]) : 0.0f;
  }
}

__device__ inline float dot(const float* a, const float* b) {
  float sum = 0.0f;
#pragma unroll 4
  for (int d = 0; d < D; d++) sum += a[d] * b[d];
  return sum;
}

// weight and slope of every query and slot in the tiles
__device__ inline void score(Tiles& tiles, const Inputs& in, bool text, int row, int k, int start,
                             int begin) {
  const int size = text ? in.S : in.M;
  for (int i = threadIdx.x; i < TILE * TILE; i += THREADS) {
    const int j = i / TILE, query = start + j, slot = begin + i % TILE;
    bool seen = query < in.G * in.T && slot < size;
    if (seen && text) {
      const int at = row % in.B * in.T + query / in.G;
      seen = (in.first ? in.first[at] : 0) <= slot && slot <= in.last[at];
    }
    float weight = 0.0f, slope = 0.0f;
    if (seen) {
      const long long at = headIndex(in, row, k, query);
      const float s = dot(tiles.query[j], tiles.key[i % TILE]) * in.scale;
      weight = expf(s - in.normalizer[at]);
      slope = weight * (dot(tiles.upstream[j], tiles.value[i % TILE]) - in.delta[at]) * in.scale;
    }
    tiles.weight[j][i % TILE] = weight;
    tiles.slope[j][i % TILE] = slope;
  }
}

// Slots that any of the queries from start on sees.
__device__ inline void visibleRange(const Inputs& in, int row, int start, int& from, int& to) {
  from = in.S, to = -1;
  const int at = row % in.B * in.T;
  for (int t = start / in.G; t < in.T && t * in.G < start + TILE; t++) {
    from = min(from, in.first ? in.first[at + t] : 0);
    to = max(to, in.last[at + t]);
  }
  from = max(from, 0), to = min(to, in.S - 1);
}

// Items are tiles of queries, those of one attention row after the other.
struct Items {
  int begin, end, firstRow, rowStep;
};

__device__ inline int tilesOf(const Inputs& in) { return (in.G * in.T + TILE - 1) / TILE; }

// Gradients of TILE slots, summed over items. A thread has one slot and PARTS dimensions.
__device__ inline void slotGradients(Tiles& tiles, const Inputs& in, bool text, int k, int begin,
                                     const Items& items, float (&dkey)[PARTS],
                                     float (&dvalue)[PARTS]) {
  const int slot = threadIdx.x / SHARE, lane = threadIdx.x % SHARE, count = tilesOf(in);
  loadSlots(tiles, in, text, items.firstRow, k, begin);
  for (int item = items.begin; item < items.end; item++) {
    const int row = items.firstRow + item / count * items.rowStep, start = item % count * TILE;
    if (text) {
      int from, to;
      visibleRange(in, row, start, from, to);
      if (from >= begin + TILE || to < begin) continue;  // the same for the whole block
    }
    __syncthreads();
    loadQueries(tiles, in, row, k, start);
    __syncthreads();
    score(tiles, in, text, row, k, start, begin);
    __syncthreads();
    for (int j = 0; j < TILE; j++) {
      const float weight = tiles.weight[j][slot], slope = tiles.slope[j][slot];
#pragma unroll
      for (int e = 0; e < PARTS; e++) {
        const int d = lane + SHARE * e;
        if (d < D) {
          dkey[e] += slope * tiles.query[j][d];
          dvalue[e] += weight * tiles.upstream[j][d];
        }
      }
    }
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    attention_queries(Element* __restrict__ dq, const Element* __restrict__ dout,
                      const float* __restrict__ normalizer, const float* __restrict__ delta,
                      const Element* __restrict__ q, const Element* __restrict__ keys,
                      const Element* __restrict__ values, const int* __restrict__ first,
                      const int* __restrict__ last, const Element* __restrict__ prefixKeys,
                      const Element* __restrict__ prefixValues, int R, int rows, int B, int T,
                      int S, int K, int G, int M, float scale) {
  takeTurn();
  const int start = blockIdx.x * TILE, k = blockIdx.y, own = blockIdx.z;
  if (start >= G * T) return;
  __shared__ __align__(16) Tiles tiles;
  const Inputs in = {dout,  q, keys, values, prefixKeys, prefixValues, normalizer, delta, first,
                     last,  R, B,    T,      S,          K,            G,          M,     scale};
  const int query = threadIdx.x / SHARE, lane = threadIdx.x % SHARE;
  float sum[PARTS] = {};
  for (int row = own; row < rows; row += R) {
    __syncthreads();
    loadQueries(tiles, in, row, k, start);
    int from, to;
    visibleRange(in, row, start, from, to);
    for (int segment = 0; segment < 2; segment++) {
      const bool text = segment == 1;
      const int end = text ? to + 1 : M;
      for (int begin = text ? from : 0; begin < end; begin += TILE) {
        __syncthreads();
        loadSlots(tiles, in, text, row, k, begin);
        __syncthreads();
        score(tiles, in, text, row, k, start, begin);
        __syncthreads();
        for (int i = 0; i < TILE; i++) {
          const float slope = tiles.slope[query][i];
#pragma unroll
          for (int e = 0; e < PARTS; e++) {
            const int d = lane + SHARE * e;
            if (d < D) sum[e] += slope * tiles.key[i][d];
          }
        }
      }
    }
  }
  if (start + query >= G * T) return;
  const long long at = headIndex(in, own, k, start + query) * D;
#pragma unroll
  for (int e = 0; e < PARTS; e++) {
    const int d = lane + SHARE * e;
    if (d < D) dq[at + d] = narrow(sum[e]);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    attention_keys(Element* __restrict__ dkeys, Element* __restrict__ dvalues,
                   const Element* __restrict__ dout, const float* __restrict__ normalizer,
                   const float* __restrict__ delta, const Element* __restrict__ q,
                   const Element* __restrict__ keys, const Element* __restrict__ values,
                   const int* __restrict__ first, const int* __restrict__ last, int R, int rows,
                   int B, int T, int S, int K, int G, float scale) {
  takeTurn();
  const int begin = blockIdx.x * TILE, k = blockIdx.y, own = blockIdx.z;
  if (begin >= S) return;
  __shared__ __align__(16) Tiles tiles;
  const Inputs in = {dout, q, keys, values, nullptr, nullptr, normalizer, delta, first,
                     last, R, B,    T,      S,       K,       G,          0,     scale};
  float dkey[PARTS] = {}, dvalue[PARTS] = {};
  const Items items = {0, tilesOf(in) * (rows / R), own, R};
  slotGradients(tiles, in, true, k, begin, items, dkey, dvalue);
  const int slot = begin + threadIdx.x / SHARE;
  if (slot >= S) return;
  const long long at = (((long long)own * K + k) * S + slot) * D;
#pragma unroll
  for (int e = 0; e < PARTS; e++) {
    const int d = threadIdx.x % SHARE + SHARE * e;
    if (d >= D) continue;
    dkeys[at + d] = narrow(dkey[e]);
    dvalues[at + d] = narrow(dvalue[e]);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    attention_prefix(float* __restrict__ partialKeys, float* __restrict__ partialValues,
                     const Element* __restrict__ dout, const float* __restrict__ normalizer,
                     const float* __restrict__ delta, const Element* __restrict__ q,
                     const Element* __restrict__ prefixKeys,
                     const Element* __restrict__ prefixValues, int R, int P, int B, int T, int K,
                     int G, int M, int chunks, float scale) {
  takeTurn();
  const int begin = blockIdx.x * TILE, k = blockIdx.y, stream = blockIdx.z % P;
  if (begin >= M) return;
  const int chunk = blockIdx.z / P;
  __shared__ __align__(16) Tiles tiles;
  const Inputs in = {dout,    q,       nullptr, nullptr, prefixKeys, prefixValues, normalizer,
                     delta,   nullptr, nullptr, R,       B,          T,            0,
                     K,       G,       M,       scale};
  const int all = tilesOf(in) * B, size = (all + chunks - 1) / chunks;
  const Items items = {chunk * size, min(all, chunk * size + size), stream * B, 1};
  float dkey[PARTS] = {}, dvalue[PARTS] = {};
  slotGradients(tiles, in, false, k, begin, items, dkey, dvalue);
  const int slot = begin + threadIdx.x / SHARE;
  if (slot >= M) return;
  const long long at = (((long long)blockIdx.z * K + k) * M + slot) * D;
#pragma unroll
  for (int e = 0; e < PARTS; e++) {
    const int d = threadIdx.x % SHARE + SHARE * e;
    if (d >= D) continue;
    partialKeys[at + d] = dkey[e];
    partialValues[at + d] = dvalue[e];
  }
}
