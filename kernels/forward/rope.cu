// rope: element i of a head turns with element i + D/2 by the angle of its position.
//
//   y[i] = x[i] cos − x[i + D/2] sin,  y[i + D/2] = x[i + D/2] cos + x[i] sin
//
// in   x [R, T, heads·D]; cosines, sines [R, T, D/2] f32
// out  y like x, which it may be
// saved for backward: the tables; the gradient is this kernel with direction −1
// reference: core/ops/rope.ts; float inside.
//
// rope_write_slots is rope of queries and keys and write_slots of keys and values, all that lies
// between projections and attention in a layer with a cache: q [R, T, H·D], k and v [R, T, K·D]
// → y where q lies, caches [R, K, S, D] from slot start[r mod starts] on, in place. A token whose
// slot is not in the cache is dropped there.
#include "common/types.cuh"

// Turns elements i and i + half of the head that starts at `from`.
__device__ inline void turnPair(Element* to, const Element* from, float c, float s, int i,
                                int half) {
  const float a = toFloat(from[i]), b = toFloat(from[i + half]);
  to[i] = fromFloat(a * c - b * s);
  to[i + half] = fromFloat(b * c + a * s);
}

extern "C" __global__ void __launch_bounds__(256)
    rope(Element* y, const Element* x, const float* __restrict__ cosines,
         const float* __restrict__ sines, int rows, int heads, int half, float direction) {
  const long long pair = (long long)blockIdx.x * blockDim.x + threadIdx.x;  // row, head, i
  if (pair >= (long long)rows * heads * half) return;
  const long long head = pair / half;  // row · heads + head
  const int i = (int)(pair % half);
  const long long table = head / heads * half + i;
  const float c = cosines[table], s = sines[table] * direction;
  turnPair(y + head * 2 * half, x + head * 2 * half, c, s, i, half);
}

extern "C" __global__ void __launch_bounds__(256)
    rope_write_slots(Element* __restrict__ keyCache, Element* __restrict__ valueCache,
                     Element* y, const Element* q, const Element* __restrict__ k,
                     const Element* __restrict__ v,
                     const float* __restrict__ cosines, const float* __restrict__ sines,
                     const int* __restrict__ start, int R, int starts, int T, int H, int K, int S,
                     int half) {
  const int all = H + 2 * K, D = 2 * half;
  const long long pair = (long long)blockIdx.x * blockDim.x + threadIdx.x;  // row, token, head, i
  if (pair >= (long long)R * T * all * half) return;
  const int i = (int)(pair % half), head = (int)(pair / half % all);
  const long long token = pair / half / all;
  const float c = cosines[token * half + i], s = sines[token * half + i];
  if (head < H) {
    const long long at = (token * H + head) * D;
    turnPair(y + at, q + at, c, s, i, half);
    return;
  }
  const int row = (int)(token / T), slot = start[row % starts] + (int)(token % T);
  if (slot < 0 || slot >= S) return;
  const int own = (head - H) % K;
  const long long from = (token * K + own) * D, to = (((long long)row * K + own) * S + slot) * D;
  if (head < H + K) {
    turnPair(keyCache + to, k + from, c, s, i, half);
  } else {
    valueCache[to + i] = v[from + i];
    valueCache[to + i + half] = v[from + i + half];
  }
}
