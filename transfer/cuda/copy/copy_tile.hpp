#pragma once

namespace terrace {

/// What one warp (or, in the bulk kernel, one stage) copies at a time: at most so many bytes of a piece as below. Read by the
/// kernels from pinned host memory; plain words, so that host and device compilers agree on it.
struct CopyTile {
  unsigned long long source;
  unsigned long long destination;
  unsigned long long bytes;
};
static_assert(sizeof(CopyTile) == 24);

/// 32 lanes with eight accesses of 16 bytes in flight each.
inline constexpr unsigned kernel_tile_bytes = 4096;
/// Threads of one block of the kernel, and its shared memory.
inline constexpr unsigned kernel_threads = 1024;

/// The bulk kernel keeps this many tiles in flight per thread block: 64 KiB.
inline constexpr unsigned bulk_tile_bytes = 8192;
inline constexpr unsigned bulk_stages = 8;
inline constexpr unsigned bulk_threads = 128;
inline constexpr unsigned bulk_shared_bytes = bulk_tile_bytes * bulk_stages;

}  // namespace terrace
