// rope: element i of a head turns with element i + D/2 by the angle of its position.
//
//   y[i] = x[i] cos − x[i + D/2] sin,  y[i + D/2] = x[i + D/2] cos + x[i] sin
//
// in   x [R, T, heads·D]; cosines, sines [R, T, D/2] f32; for the tables positions [R, T] i32 and
//      frequencies [D/2] f32
// out  y like x, which it may be; the tables
// saved for backward: the tables; the gradient is this kernel with direction −1
// reference: core/ops/rope.ts. The tables are within 1 unit in the last place: angles are float
// as there, sine and cosine are computed in double. Not yet run on a GPU.
// What surprises: no sinf or cosf, whose reduction of large angles would need memory on the
// stack.
#include "common/types.cuh"

// Angle less a whole number of quarter turns, in [−π/4, π/4], and the number of them mod 4.
__device__ inline double reduceAngle(float angle, int& quarter) {
  const double turns = rint(angle * 0.63661977236758134308);  // 2/π
  quarter = (int)((long long)turns & 3);
  return (double)angle - turns * 1.57079632679489661923;  // π/2; angles stay far below 2⁵³ ulp
}

// The table is a few kilobytes per program, so Taylor series in double cost nothing.
extern "C" __global__ void __launch_bounds__(128)
    rope_tables(float* __restrict__ cosines, float* __restrict__ sines,
                const int* __restrict__ positions, const float* __restrict__ frequencies, int rows,
                int half) {
  const long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= (long long)rows * half) return;
  int quarter;
  const double r = reduceAngle(positions[at / half] * frequencies[at % half], quarter);
  const double s = r * r;
  double sine = 1.0 / 6227020800.0, cosine = -1.0 / 87178291200.0;  // 1/13!, −1/14!
  sine = sine * s - 1.0 / 39916800.0, cosine = cosine * s + 1.0 / 479001600.0;
  sine = sine * s + 1.0 / 362880.0, cosine = cosine * s - 1.0 / 3628800.0;
  sine = sine * s - 1.0 / 5040.0, cosine = cosine * s + 1.0 / 40320.0;
  sine = sine * s + 1.0 / 120.0, cosine = cosine * s - 1.0 / 720.0;
  sine = sine * s - 1.0 / 6.0, cosine = cosine * s + 1.0 / 24.0;
  sine = (sine * s + 1.0) * r, cosine = (cosine * s - 0.5) * s + 1.0;
  const float a = (float)(quarter % 2 ? sine : cosine), b = (float)(quarter % 2 ? cosine : sine);
  cosines[at] = quarter == 1 || quarter == 2 ? -a : a;
  sines[at] = quarter >= 2 ? -b : b;
}

extern "C" __global__ void __launch_bounds__(256)
    rope(Element* y, const Element* x, const float* __restrict__ cosines,
         const float* __restrict__ sines, int rows, int heads, int half, float direction) {
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
