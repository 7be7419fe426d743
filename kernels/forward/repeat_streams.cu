// repeat_streams: the rows of x once per stream, stream-major.
//
// in   x [count] elements
// out  y [P, count]
// saved for backward: nothing
// reference: core/ops/repeat_streams.ts, equal to the bit. Not yet run on a GPU.
#include "common/types.cuh"

extern "C" __global__ void __launch_bounds__(256)
    repeat_streams(Element* __restrict__ y, const Element* __restrict__ x, long long count, int P) {
  const int step = packStep((int)(count % WIDTH));
  const long long at = ((long long)blockIdx.x * blockDim.x + threadIdx.x) * WIDTH;
  if (at >= count) return;
  for (int i = 0; i < WIDTH && at + i < count; i += step) {
    const Pack pack = load(x + at + i, step);
    for (int p = 0; p < P; p++) store(y + p * count + at + i, pack, step);
  }
}
