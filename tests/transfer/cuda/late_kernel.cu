// A late kernel: it blocks until the host releases it, and then writes.

/// One block with one thread per byte of the part; `gate` is pinned host memory.
extern "C" __global__ void terrace_test_late_write(const volatile unsigned* gate, unsigned char* part, unsigned bytes,
                                                   unsigned char value) {
  if (threadIdx.x == 0) {
    while (*gate == 0) __nanosleep(1000);
    __threadfence_system();
  }
  __syncthreads();
  for (unsigned at = threadIdx.x; at < bytes; at += blockDim.x) part[at] = value;
}
