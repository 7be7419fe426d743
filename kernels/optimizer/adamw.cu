// adamw: one step of Adam with decoupled weight decay, for all tensors in one launch.
//
//   ĝ = s g,  m ← β₁ m + (1 − β₁) ĝ,  v ← β₂ v + (1 − β₂) ĝ²
//   θ ← d θ − a m / (√(c v) + ε)
//
// in   chunks [count]: pieces of tensors, each with parameter, m, v, gradient [size] f32 and copy
//      [size] Element or null; step [4] f32: s, d, a, c
// out  parameter, m, v where they lie; copy = the new parameter, rounded
// reference: core/ops/adamw.ts, up to rounding in float: that one forms its scalars in other
// order. Not yet run on a GPU.
// step lies in device memory, so that a captured graph works at every learning rate.
#include "common/types.cuh"

struct Chunk {
  float* parameter;
  float* m;
  float* v;
  const float* gradient;
  Element* copy;
  long long size;
};

extern "C" __global__ void __launch_bounds__(256)
    adamw(const Chunk* __restrict__ chunks, const float* __restrict__ step, int count, float beta1,
          float beta2, float epsilon) {
  if (blockIdx.x >= count) return;
  const Chunk chunk = chunks[blockIdx.x];
  const float scale = step[0], decay = step[1], size = step[2], correction = step[3];
  for (long long i = threadIdx.x; i < chunk.size; i += blockDim.x) {
    const float g = chunk.gradient[i] * scale;
    const float m = beta1 * chunk.m[i] + (1.0f - beta1) * g;
    const float v = beta2 * chunk.v[i] + (1.0f - beta2) * g * g;
    const float next = decay * chunk.parameter[i] - size * m / (sqrtf(correction * v) + epsilon);
    chunk.m[i] = m;
    chunk.v[i] = v;
    chunk.parameter[i] = next;
    if (chunk.copy) chunk.copy[i] = narrow(next);
  }
}
