// matmul: y = scale · A B over the last two axes, leading axes broadcast.
//
// in   a, b: matrices whose element (row, column) lies row·Row + column·Column after the first,
//      so either may be transposed; batches (i0, i1, i2) of sizes (…, n1, n2) lie Σ i·stride apart,
//      0 along a broadcast axis
// out  y [batch, m, n], dense
// reference: core/graph/primitives/products.ts, in float, k in order.
// For products that no model op stands for, which are small; layers go through `linear`.

constexpr int TILE = 16;

extern "C" __global__ void __launch_bounds__(TILE * TILE)
    matmul(float* __restrict__ y, const float* __restrict__ a, const float* __restrict__ b, int m,
           int n, int k, int aRow, int aColumn, int bRow, int bColumn, int n1, int n2, int a0,
           int a1, int a2, int b0, int b1, int b2, float scale) {
  const int column = blockIdx.x * TILE, row = blockIdx.y * TILE, batch = blockIdx.z;
  if (column >= n || row >= m) return;
  __shared__ float left[TILE][TILE + 1], right[TILE][TILE + 1];
  const int i2 = batch % n2, i1 = batch / n2 % n1, i0 = batch / n2 / n1;
  const float* A = a + (long long)i0 * a0 + (long long)i1 * a1 + (long long)i2 * a2;
  const float* B = b + (long long)i0 * b0 + (long long)i1 * b1 + (long long)i2 * b2;
  const int x = threadIdx.x % TILE, z = threadIdx.x / TILE;
  float sum = 0.0f;
  for (int begin = 0; begin < k; begin += TILE) {
    const bool inA = row + z < m && begin + x < k, inB = begin + z < k && column + x < n;
    left[z][x] = inA ? A[(long long)(row + z) * aRow + (long long)(begin + x) * aColumn] : 0.0f;
    right[z][x] = inB ? B[(long long)(begin + z) * bRow + (long long)(column + x) * bColumn] : 0.0f;
    __syncthreads();
    for (int i = 0; i < TILE; i++) sum += left[z][i] * right[i][x];
    __syncthreads();
  }
  if (row + z < m && column + x < n) {
    y[((long long)batch * m + row + z) * n + column + x] = sum * scale;
  }
}
