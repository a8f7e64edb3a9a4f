#pragma once

namespace terrace {

/// A part of a piece that one warp (or, in the bulk kernel, one stage) copies at a time. Its size is limited as below. The
/// kernels read tiles from pinned host memory. A tile consists of plain words, so that the compilers of host and device agree on
/// it.
struct CopyTile {
  unsigned long long source;
  unsigned long long destination;
  unsigned long long bytes;
};
static_assert(sizeof(CopyTile) == 24);

/// The size of a tile: 32 lanes with eight accesses of 16 bytes in flight each.
inline constexpr unsigned kernel_tile_bytes = 4096;
/// The number of threads in one block of the kernel.
inline constexpr unsigned kernel_threads = 1024;

/// The bulk kernel keeps this many tiles in flight for each thread block: 64 KiB.
inline constexpr unsigned bulk_tile_bytes = 8192;
inline constexpr unsigned bulk_stages = 8;
inline constexpr unsigned bulk_threads = 128;
inline constexpr unsigned bulk_shared_bytes = bulk_tile_bytes * bulk_stages;

}  // namespace terrace
