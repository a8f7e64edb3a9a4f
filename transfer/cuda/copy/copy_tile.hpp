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
/// Threads of one block of the kernel. A block has 32 KiB in flight, and takes at most a quarter of the registers of a
/// multiprocessor (__launch_bounds__), so that compute can run at the same time.
inline constexpr unsigned kernel_threads = 256;
inline constexpr unsigned kernel_blocks_beside = 4;  ///< blocks that a multiprocessor has room for

/// The bulk kernel keeps this many tiles in shared memory for each thread block: 32 KiB.
inline constexpr unsigned bulk_tile_bytes = 8192;
inline constexpr unsigned bulk_stages = 4;
inline constexpr unsigned bulk_threads = 128;
inline constexpr unsigned bulk_shared_bytes = bulk_tile_bytes * bulk_stages;

/// Increase it with every change of the kernels that may change their speed. Rates of other revisions are ignored.
inline constexpr unsigned kernel_revision = 2;

}  // namespace terrace
