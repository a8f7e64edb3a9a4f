// Kernels that stand for the steps of an engine (cuda_work.cpp).

constexpr unsigned block_threads = 256;

/// Streams device memory: each byte is read and written once.
extern "C" __global__ void __launch_bounds__(block_threads)
    terrace_bench_memory(const uint4* from, uint4* to, unsigned long long vectors) {
  const unsigned long long stride = static_cast<unsigned long long>(gridDim.x) * blockDim.x;
  for (unsigned long long at = static_cast<unsigned long long>(blockIdx.x) * blockDim.x + threadIdx.x; at < vectors;
       at += stride) {
    to[at] = from[at];
  }
}

/// Multiplies and adds in registers. Its shared memory only keeps other thread blocks away.
extern "C" __global__ void __launch_bounds__(block_threads) terrace_bench_arithmetic(float* out, unsigned rounds) {
  extern __shared__ float tile[];
  constexpr int chains = 16;
  float sums[chains];
  float factor = static_cast<float>(threadIdx.x);
#pragma unroll
  for (int i = 0; i < chains; ++i) sums[i] = static_cast<float>(i);
  for (unsigned round = 0; round < rounds; ++round) {
#pragma unroll
    for (int i = 0; i < chains; ++i) sums[i] = fmaf(factor, 1.0001F, sums[i]);
  }
#pragma unroll
  for (int i = 0; i < chains; ++i) factor += sums[i];
  tile[threadIdx.x] = factor;
  if (factor == 1.0F) out[blockIdx.x] = tile[0];  // keeps the compiler from removing the sums
}
