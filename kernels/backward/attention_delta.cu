// attention_delta: what the gradient of the softmax in attention takes off every slope.
//
//   delta = Σ dout out, over the D elements of a head
//
// in   dout, out [heads, D]
// out  delta [heads] f32
// reference: the rule in core/ops/attention.ts; 2e-6.
//
// This is Σ w dw over all slots, since out is Σ w v and dw is dout v.
#include "common/reduce.cuh"
#include "common/types.cuh"

constexpr int D = HEAD_DIM, WARPS = 4;

extern "C" __global__ void __launch_bounds__(32 * WARPS)
    attention_delta(float* __restrict__ delta, const Element* __restrict__ dout,
                    const Element* __restrict__ out, long long heads) {
  takeTurn();
  const long long head = (long long)blockIdx.x * WARPS + threadIdx.x / 32;
  if (head >= heads) return;
  float sum = 0.0f;
  for (int d = threadIdx.x % 32; d < D; d += 32) {
    sum += widen(dout[head * D + d]) * widen(out[head * D + d]);
  }
  sum = warpSum(sum);
  if (threadIdx.x % 32 == 0) delta[head] = sum;
}
