// rope: element i of a head turns with element i + D/2 by the angle of its position.
//
//   y[i] = x[i] cos − x[i + D/2] sin,  y[i + D/2] = x[i + D/2] cos + x[i] sin
//
// in   x [R, T, heads·D]; cosines, sines [R, T, D/2] f32
// out  y like x, which it may be
// saved for backward: the tables; the gradient is this kernel with direction −1
// reference: core/ops/rope.ts; float inside. Not yet run on a GPU.
#include "common/types.cuh"

extern "C" __global__ void __launch_bounds__(256)
    rope(Element* y, const Element* x, const float* __restrict__ cosines,
         const float* __restrict__ sines, int rows, int heads, int half, float direction) {
  takeTurn();
  const long long pair = (long long)blockIdx.x * blockDim.x + threadIdx.x;  // row, head, i
  if (pair >= (long long)rows * heads * half) return;
  const long long head = pair / half;  // row · heads + head
  const int i = (int)(pair % half);
  const long long low = head * 2 * half + i, high = low + half;
  const long long table = head / heads * half + i;
  const float c = cosines[table], s = sines[table] * direction;
  const float a = widen(x[low]), b = widen(x[high]);
  y[low] = narrow(a * c - b * s);
  y[high] = narrow(b * c + a * s);
}
