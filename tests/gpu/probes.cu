// Small kernels that find out what a machine does: used by bring_up.ts, never shipped.

extern "C" __global__ void __launch_bounds__(256)
    probe_copy(float* __restrict__ y, const float* __restrict__ x, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  y[i] = x[i];
}

// Fills `count` floats of dynamic shared memory and sums them up again.
extern "C" __global__ void __launch_bounds__(256) probe_shared(float* __restrict__ sum, int count) {
  float* memory = reinterpret_cast<float*>(dynamicShared());
  for (int i = threadIdx.x; i < count; i += blockDim.x) memory[i] = 1.0f;
  __syncthreads();
  if (threadIdx.x > 0) return;
  float total = 0.0f;
  for (int i = 0; i < count; i++) total += memory[i];
  sum[0] = total;
}

extern "C" __global__ void __launch_bounds__(32) probe_nothing(int unused) {
  takeTurn();
  if (unused >= 0) return;
}

// Each element from two others of the result before, so that a launch that reads too early shows.
extern "C" __global__ void __launch_bounds__(256)
    probe_chain(unsigned* __restrict__ y, const unsigned* __restrict__ x, int count) {
  takeTurn();
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  y[i] = 3 * x[(i + 1) % count] + x[(i + count / 2) % count] + 1;
}

// Reads everything once, 16 bytes at a time, and writes next to nothing.
extern "C" __global__ void __launch_bounds__(512)
    probe_read(float* __restrict__ sums, const float4* __restrict__ x, long long count) {
  float sum = 0.0f;
  const long long step = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
    const float4 v = x[i];
    sum += v.x + v.y + v.z + v.w;
  }
  if (sum == 12345.0f) sums[blockIdx.x] = sum;  // keeps the reads from being dropped
}

// Writes a number into mapped host memory.
extern "C" __global__ void __launch_bounds__(32) probe_ring(volatile int* ring, int value) {
  if (threadIdx.x > 0) return;
  ring[0] = value;
  __threadfence_system();
}

// bf16 between −1 and 1, other ones at each place: products of zeros are faster than they should be.
extern "C" __global__ void __launch_bounds__(256)
    probe_random(unsigned short* __restrict__ y, long long count) {
  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  unsigned x = (unsigned)i * 747796405u + 2891336453u;
  x = ((x >> ((x >> 28) + 4)) ^ x) * 277803737u;
  y[i] = (unsigned short)((x >> 16 & 0x80ffu) | 0x3f00u);
}
