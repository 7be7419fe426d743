// Gradients of attention, recomputing weights by tiles. With s = scale q k and delta = Σ dout out:
//
//   w = exp(s − normalizer),  ds = w (dout v − delta) scale
//   dq = Σ ds k,  dk = Σ ds q,  dv = Σ w dout
//
// in   dout, out [P·B, T, H·D], normalizer [P·B, T, H] f32 as the forward pass saved it, and the
//      inputs of forward/attention_split.cu but table
// out  attention_delta: delta [heads] f32; attention_queries: dq [R, T, H, D]; attention_slots:
//      dkeys, dvalues [chunks, R, K, S, D] f32 of the text, or [chunks, P, K, M, D] of the prefix
// reference: the rule in core/ops/attention.ts; float inside, every sum in a fixed order.
//
// Where R is B (layer 0), a gradient of shared text is summed over the streams inside one block;
// that of a prefix over the B rows of its stream.
#include "common/attention.cuh"
#include "common/reduce.cuh"

constexpr int D = HEAD_DIM, THREADS = 128, TILE = 16, SPAN = D + 4;
constexpr int SHARE = THREADS / TILE;  // threads that share one row of a tile
constexpr int PARTS = (D + SHARE - 1) / SHARE;
// Blocks per processor: the compiler would spill registers to fit one more.
constexpr int BLOCKS = 4;

// Σ w dw over all slots, since out is Σ w v and dw is dout v.
extern "C" __global__ void __launch_bounds__(THREADS)
    attention_delta(float* __restrict__ delta, const Element* __restrict__ dout,
                    const Element* __restrict__ out, long long heads) {
  const long long head = (long long)blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
  if (head >= heads) return;
  float sum = 0.0f;
  for (int d = threadIdx.x % 32; d < D; d += 32) {
    sum += toFloat(dout[head * D + d]) * toFloat(out[head * D + d]);
  }
  sum = warpSum(sum);
  if (threadIdx.x % 32 == 0) delta[head] = sum;
}

struct Tiles {
  float query[TILE][SPAN];
  float upstream[TILE][SPAN];
  float key[TILE][SPAN];
  float value[TILE][SPAN];
  float weight[TILE][TILE + 1];  // [query, slot]
  float slope[TILE][TILE + 1];   // ds
};

// TILE queries of one key head of attention row `row`, and the gradients of their outputs
__device__ inline void loadQueries(Tiles& tiles, const Gradients& in, int row, int k, int start) {
  for (int i = threadIdx.x; i < TILE * D; i += THREADS) {
    const int query = start + i / D, d = i % D;
    const bool there = query < in.a.queries();
    const long long own = there ? in.a.head(row % in.a.R, k, query) : 0;
    const long long full = there ? in.a.head(row, k, query) : 0;
    tiles.query[i / D][d] = there ? toFloat(in.q[own * D + d]) : 0.0f;
    tiles.upstream[i / D][d] = there ? toFloat(in.dout[full * D + d]) : 0.0f;
  }
}

// TILE slots of the text or the prefix of attention row `row`, zeros from slot `end` on
__device__ inline void loadSlots(Tiles& tiles, const Gradients& in, bool text, int row, int k,
                                 int begin, int end) {
  const long long slots = in.a.slots(text, row, k);
  for (int i = threadIdx.x; i < TILE * D; i += THREADS) {
    const int slot = begin + i / D, d = i % D;
    const bool there = slot < end;
    const long long at = (slots + slot) * D + d;
    tiles.key[i / D][d] = there ? toFloat(in.keys[at]) : 0.0f;
    tiles.value[i / D][d] = there ? toFloat(in.values[at]) : 0.0f;
  }
}

__device__ inline float dot(const float* a, const float* b) {
  float sum = 0.0f;
#pragma unroll 4
  for (int d = 0; d < D; d++) sum += a[d] * b[d];
  return sum;
}

// weight and slope of every query and slot in the tiles
__device__ inline void score(Tiles& tiles, const Gradients& in, bool text, int row, int k,
                             int start, int begin) {
  for (int i = threadIdx.x; i < TILE * TILE; i += THREADS) {
    const int j = i / TILE, query = start + j, slot = begin + i % TILE;
    const bool there = query < in.a.queries() && slot < (text ? in.a.S : in.a.M);
    float weight = 0.0f, slope = 0.0f;
    if (there && (!text || visible(in.a, row, query).has(slot))) {
      const long long at = in.a.head(row, k, query);
      const float s = dot(tiles.query[j], tiles.key[i % TILE]) * in.a.scale;
      weight = expf(s - in.normalizer[at]);
      const float dw = dot(tiles.upstream[j], tiles.value[i % TILE]);
      slope = weight * (dw - in.delta[at]) * in.a.scale;
    }
    tiles.weight[j][i % TILE] = weight;
    tiles.slope[j][i % TILE] = slope;
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
  const int start = blockIdx.x * TILE, k = blockIdx.y, own = blockIdx.z;
  if (start >= G * T) return;
  __shared__ __align__(16) Tiles tiles;
  const Attention a = {R, B, T, S, K, G, M, scale, first, last};
  Gradients in = {a, dout, q, keys, values, normalizer, delta};
  const int query = threadIdx.x / SHARE, lane = threadIdx.x % SHARE;
  const Range all = visibleToAny(a, own, start, TILE);
  float sum[PARTS] = {};
  for (int row = own; row < rows; row += R) {
    __syncthreads();
    loadQueries(tiles, in, row, k, start);
    for (int segment = 0; segment < 2; segment++) {
      const bool isText = segment == 1;
      in.keys = isText ? keys : prefixKeys, in.values = isText ? values : prefixValues;
      const int end = isText ? all.to + 1 : M;
      for (int begin = isText ? all.from : 0; begin < end; begin += TILE) {
        __syncthreads();
        loadSlots(tiles, in, isText, row, k, begin, end);
        __syncthreads();
        score(tiles, in, isText, row, k, start, begin);
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
  const long long at = a.head(own, k, start + query) * D;
#pragma unroll
  for (int e = 0; e < PARTS; e++) {
    const int d = lane + SHARE * e;
    if (d < D) dq[at + d] = fromFloat(sum[e]);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    attention_slots(float* __restrict__ dkeys, float* __restrict__ dvalues,
                    const Element* __restrict__ dout, const float* __restrict__ normalizer,
                    const float* __restrict__ delta, const Element* __restrict__ q,
                    const Element* __restrict__ keys, const Element* __restrict__ values,
                    const int* __restrict__ first, const int* __restrict__ last, int R, int rows,
                    int B, int T, int S, int K, int G, int M, int chunks, float scale) {
  const Attention a = {R, B, T, S, K, G, M, scale, first, last};
  const SlotTask task = slotTask(a, rows, chunks, TILE);
  const int begin = blockIdx.x * TILE, k = blockIdx.y;
  if (begin >= task.size) return;
  __shared__ __align__(16) Tiles tiles;
  const Gradients in = {a, dout, q, keys, values, normalizer, delta};
  const int slot = threadIdx.x / SHARE, lane = threadIdx.x % SHARE;
  const int count = (a.queries() + TILE - 1) / TILE;
  float dkey[PARTS] = {}, dvalue[PARTS] = {};
  loadSlots(tiles, in, task.text, task.firstRow, k, begin, task.size);
  for (int item = task.items.from; item <= task.items.to; item++) {
    const int row = task.firstRow + item / count * task.rowStep, start = item % count * TILE;
    if (task.text) {
      const Range all = visibleToAny(a, row, start, TILE);
      if (all.from >= begin + TILE || all.to < begin) continue;  // the same for the whole block
    }
    __syncthreads();
    loadQueries(tiles, in, row, k, start);
    __syncthreads();
    score(tiles, in, task.text, row, k, start, begin);
    __syncthreads();
    for (int j = 0; j < TILE; j++) {
      const float weight = tiles.weight[j][slot], slope = tiles.slope[j][slot];
#pragma unroll
      for (int e = 0; e < PARTS; e++) {
        const int d = lane + SHARE * e;
        if (d >= D) continue;
        dkey[e] += slope * tiles.query[j][d];
        dvalue[e] += weight * tiles.upstream[j][d];
      }
    }
  }
  if (begin + slot >= task.size) return;
  const long long at = (((long long)blockIdx.z * K + k) * task.size + begin + slot) * D;
#pragma unroll
  for (int e = 0; e < PARTS; e++) {
    const int d = lane + SHARE * e;
    if (d < D) dkeys[at + d] = dkey[e], dvalues[at + d] = dvalue[e];
  }
}
