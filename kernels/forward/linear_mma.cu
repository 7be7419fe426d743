// linear_mma, linear_swiglu_mma: forward/linear.cu on tensor cores, in bf16, for 2 … 64 rows.
//
//   y = x weightᵀ + bias,  y = silu(x gateᵀ) · (x upᵀ)
//
// in, out, saved for backward: as there; M is ROWS at most, K a multiple of 8
// reference: core/ops/linear.ts, core/ops/activation.ts; products are exact and added in float, in
// an order that depends on K alone: 1e-5 of the largest result where it is WIDE, else the rounding
// to bf16.
//
// A block has 16 or 32 weight rows. Its warps share out K in runs of 256 bytes of a row and meet at
// the end. Weights go from memory into registers, past the first-level cache, as the left operand
// of products whose right one is x, 8 rows at a time. Every block reads all of x, ROWS / 16 of
// what 16 weight rows take. So up to ROWS = 16 they are a block, of which N = 2048 makes 128;
// then 32 are, and for each byte of weights at most two of x are read. A lane asks for 8 or 16
// pieces of weights before it waits, as many as leave room for two blocks on a processor, for one
// where ROWS is 64.
//
// The order of k within a product is free as long as both operands have the same. So a lane reads 8
// neighbours of a row at once, and takes the first four for one product, the last four for another.
#include "common/linear.cuh"
#include "common/ptx.cuh"
#include "common/turn.cuh"

constexpr int WARPS = 8, THREADS = 32 * WARPS, BLOCKS = ROWS <= 32 ? 2 : 1;
constexpr int TILE = 16, XTILES = ROWS / 8;       // rows of an operand, tiles of x
constexpr int CHUNK = 32, RUN = 4 * CHUNK;        // of k: two products, what a warp takes at a time
constexpr int LINEAR_TILES = ROWS <= 16 ? 1 : 2;  // of weights
constexpr int STRIP = ROWS <= 32 ? ROWS : 32;     // rows for which sums meet at a time
static_assert(BF16 && ROWS % 8 == 0 && ROWS <= 64, "x is tiles of 8 rows, sums are in registers");

// Where a lane reads next, in its weight rows and its rows of x.
template <int TILES>
struct Rows {
  const Element* weights[TILES][2];
  const Element* x[XTILES];

  __device__ void advance(int count) {
#pragma unroll
    for (int i = 0; i < 2 * TILES; i++) weights[i / 2][i % 2] += count;
#pragma unroll
    for (int j = 0; j < XTILES; j++) x[j] += count;
  }
};

// Adds the products of some chunks, of which all is there if WHOLE, else what is before `left`.
template <int CHUNKS, bool WHOLE, int TILES>
__device__ inline void addChunks(float (&sums)[TILES][XTILES][4], const Rows<TILES>& rows,
                                 int left) {
  unsigned w[CHUNKS][TILES][2][4];
#pragma unroll
  for (int c = 0; c < CHUNKS; c++) {
#pragma unroll
    for (int i = 0; i < 2 * TILES; i++) {
      const int at = c * CHUNK;
      ld_nc_no_allocate_16(w[c][i / 2][i % 2], rows.weights[i / 2][i % 2] + at, WHOLE || at < left);
    }
  }
#pragma unroll
  for (int c = 0; c < CHUNKS; c++) {
#pragma unroll
    for (int j = 0; j < XTILES; j++) {
      const int at = c * CHUNK;
      uint4 b = {0, 0, 0, 0};
      if (WHOLE || at < left) b = *reinterpret_cast<const uint4*>(rows.x[j] + at);
#pragma unroll
      for (int i = 0; i < TILES; i++) {
        const auto& a = w[c][i];
        mma_m16n8k16_bf16(sums[i][j], {a[0][0], a[1][0], a[0][1], a[1][1]}, {b.x, b.y});
        mma_m16n8k16_bf16(sums[i][j], {a[0][2], a[1][2], a[0][3], a[1][3]}, {b.z, b.w});
      }
    }
  }
}

// Sums over this warp's part of K; rowOf(n) is weight row n of the block. Past the edge the last
// row of x is computed again and not stored.
template <int TILES, class RowOf>
__device__ inline void multiply(float (&sums)[TILES][XTILES][4], const Element* x, RowOf rowOf,
                                int M, int K) {
  constexpr int CHUNKS = TILES * ROWS <= 16 ? 4 : 2;
  const int warp = threadIdx.x / 32, group = threadIdx.x % 32 / 4, piece = threadIdx.x % 4 * 8;
  const int start = warp * RUN + piece;
  Rows<TILES> rows;
#pragma unroll
  for (int i = 0; i < 2 * TILES; i++) rows.weights[i / 2][i % 2] = rowOf(i * 8 + group) + start;
#pragma unroll
  for (int j = 0; j < XTILES; j++) {
    rows.x[j] = x + (long long)min(j * 8 + group, M - 1) * K + start;
  }
  int left = K - warp * RUN;
#pragma unroll 1
  for (; left >= RUN; left -= WARPS * RUN) {
#pragma unroll 1  // so that sums have one order, however many chunks are read at once
    for (int k = 0; k < RUN; k += CHUNKS * CHUNK) {
      addChunks<CHUNKS, true>(sums, rows, left);
      rows.advance(CHUNKS * CHUNK);
    }
    rows.advance((WARPS - 1) * RUN);
  }
#pragma unroll 1
  for (; left > 0; left -= CHUNK) {
    addChunks<1, false>(sums, rows, left - piece);
    rows.advance(CHUNK);
  }
}

// The sums of every warp for STRIP rows of x.
template <int TILES>
struct Shared {
  float sums[WARPS][STRIP][TILES * TILE + 4];  // 4 more: a warp writes into different banks
};

// Adds up what the warps found, warp by warp. Each thread calls write(row, total) for the rows that
// it writes, where total(n) is the sum for weight row n; SPAN neighbours have the same rows.
template <int SPAN, int TILES, class Write>
__device__ inline void meet(Shared<TILES>& shared, const float (&sums)[TILES][XTILES][4], int M,
                            Write write) {
  const int warp = threadIdx.x / 32, group = threadIdx.x % 32 / 4, pair = threadIdx.x % 4 * 2;
#pragma unroll
  for (int begin = 0; begin < ROWS; begin += STRIP) {
    if (begin > 0) __syncthreads();
#pragma unroll
    for (int i = 0; i < TILES; i++) {
#pragma unroll
      for (int j = 0; j < STRIP / 8; j++) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
          shared.sums[warp][j * 8 + pair + e % 2][i * TILE + e / 2 * 8 + group] =
              sums[i][begin / 8 + j][e];
        }
      }
    }
    __syncthreads();
#pragma unroll 1
    for (int m = threadIdx.x / SPAN; m < min(STRIP, M - begin); m += THREADS / SPAN) {
      write(begin + m, [&](int n) {
        float total = 0.0f;
#pragma unroll
        for (int w = 0; w < WARPS; w++) total += shared.sums[w][m][n];
        return total;
      });
    }
  }
}

extern "C" __global__ void __launch_bounds__(32 * WARPS, BLOCKS)
    linear_mma(Result* __restrict__ y0, Result* __restrict__ y1, Result* __restrict__ y2,
               const Element* __restrict__ x, const Element* __restrict__ weight0,
               const Element* __restrict__ weight1, const Element* __restrict__ weight2,
               const Element* __restrict__ bias0, const Element* __restrict__ bias1,
               const Element* __restrict__ bias2, int M, int N0, int N1, int N2, int K) {
  takeTurn();
  constexpr int SPAN = LINEAR_TILES * TILE;
  const Place place = placeOf(N0, N1, N2, SPAN);
  const int N = place.N, column = place.block * SPAN, own = threadIdx.x % SPAN;
  const Element* weight = place.pick(weight0, weight1, weight2);
  takeTurn([&] { fetchWeights(weight, column, SPAN, N, K); });
  if (column >= N) return;
  const Element* biases = place.pick(bias0, bias1, bias2);
  Result* y = place.pick(y0, y1, y2);
  const bool writes = column + own < N, shifts = writes && biases;
  // Read now, needed in the end: unconditionally, since behind a branch it would be waited for.
  const Element bias = *(shifts ? biases + column + own : weight);
  __shared__ Shared<LINEAR_TILES> shared;
  float sums[LINEAR_TILES][XTILES][4] = {};
  const auto rowOf = [&](int n) { return weight + (long long)min(column + n, N - 1) * K; };
  multiply(sums, x, rowOf, M, K);
  const float offset = shifts ? widen(bias) : 0.0f;
  meet<SPAN>(shared, sums, M, [&](int row, auto total) {
    if (writes) y[(long long)row * N + column + own] = result(total(own) + offset);
  });
}

// One tile of gates and one of what they let through.
extern "C" __global__ void __launch_bounds__(32 * WARPS, BLOCKS)
    linear_swiglu_mma(Element* __restrict__ y, const Element* __restrict__ x,
                      const Element* __restrict__ gate, const Element* __restrict__ up, int M,
                      int N, int K) {
  takeTurn();
  const int column = blockIdx.x * TILE, own = threadIdx.x % TILE;
  takeTurn([&] {
    fetchWeights(gate, column, TILE, N, K);
    fetchWeights(up, column, TILE, N, K);
  });
  if (column >= N) return;
  __shared__ Shared<2> shared;
  float sums[2][XTILES][4] = {};
  const auto rowOf = [&](int n) {
    return (n < TILE ? gate : up) + (long long)min(column + n % TILE, N - 1) * K;
  };
  multiply(sums, x, rowOf, M, K);
  meet<TILE>(shared, sums, M, [&](int row, auto total) {
    if (column + own >= N) return;
    y[(long long)row * N + column + own] = gated(total(own), total(TILE + own));
  });
}
