// Gather and scatter kernels. Descriptors in pinned host memory name the tiles to copy. The kernels do not distinguish memory of
// the device and of the host, because the host's pages are mapped.
//
// They use few small thread blocks, so that a concurrent decode step keeps most multiprocessors. A link needs enough bytes in
// flight: about 100 KB for 55 GB/s at 2 microseconds. One block of 256 threads has 32 KiB in flight; a block of the bulk kernel
// has 16 KiB of loads and 16 KiB of stores in flight.

#include "transfer/cuda/copy/copy_tile.hpp"

#include <cstdint>

namespace {

using terrace::CopyTile;

constexpr unsigned lanes = 32;
constexpr unsigned all_lanes = 0xFFFF'FFFFU;

/// Reads a descriptor from host memory each time, not from a cache, because the host overwrites the ring between launches.
__device__ CopyTile load(const CopyTile* tile) {
  const auto* words = reinterpret_cast<const unsigned long long*>(tile);
  CopyTile loaded;
  loaded.source = __ldcv(words);
  loaded.destination = __ldcv(words + 1);
  loaded.bytes = __ldcv(words + 2);
  return loaded;
}

/// Copies by streaming accesses: neither side is read again soon, and the data of compute should stay in the cache.
__device__ void copy_vectors(const uint4* source, uint4* destination, unsigned count, unsigned lane) {
  constexpr unsigned unroll = 8;
  unsigned at = lane;
  for (; at + (unroll - 1) * lanes < count; at += unroll * lanes) {
    uint4 held[unroll];
#pragma unroll
    for (unsigned i = 0; i < unroll; ++i) held[i] = __ldcs(source + at + i * lanes);
#pragma unroll
    for (unsigned i = 0; i < unroll; ++i) __stcs(destination + at + i * lanes, held[i]);
  }
  for (; at < count; at += lanes) __stcs(destination + at, __ldcs(source + at));
}

__device__ void copy_tile(unsigned long long source, unsigned long long destination, unsigned long long bytes, unsigned lane) {
  if ((source | destination | bytes) % sizeof(uint4) == 0) {
    copy_vectors(reinterpret_cast<const uint4*>(source), reinterpret_cast<uint4*>(destination),
                 static_cast<unsigned>(bytes / sizeof(uint4)), lane);
    return;
  }
  const auto* from = reinterpret_cast<const unsigned char*>(source);
  auto* to = reinterpret_cast<unsigned char*>(destination);
  for (unsigned long long at = lane; at < bytes; at += lanes) to[at] = from[at];
}

}  // namespace

/// Each warp copies one tile at a time. A warp reads the descriptors of its next 32 tiles at once, one for each lane, so that
/// this takes one trip across the link instead of 32.
extern "C" __global__ void __launch_bounds__(terrace::kernel_threads, terrace::kernel_blocks_beside)
    terrace_copy_tiles(const CopyTile* tiles, unsigned count) {
  const unsigned lane = threadIdx.x % lanes;
  const unsigned warp = (blockIdx.x * blockDim.x + threadIdx.x) / lanes;
  const unsigned warps = gridDim.x * blockDim.x / lanes;
  for (unsigned first = warp; first < count; first += warps * lanes) {
    const unsigned mine = first + lane * warps;
    CopyTile tile;
    if (mine < count) tile = load(tiles + mine);
    for (unsigned i = 0; i < lanes && first + i * warps < count; ++i) {
      const int from = static_cast<int>(i);
      copy_tile(__shfl_sync(all_lanes, tile.source, from), __shfl_sync(all_lanes, tile.destination, from),
                __shfl_sync(all_lanes, tile.bytes, from), lane);
    }
  }
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

namespace {

using terrace::bulk_stages;
using terrace::bulk_tile_bytes;

/// The number of stores that may still read their stage while the next load is issued. The other stages are loads in flight.
constexpr unsigned stores_behind = 2;
static_assert(stores_behind < bulk_stages);

__device__ unsigned shared_address(const void* pointer) { return static_cast<unsigned>(__cvta_generic_to_shared(pointer)); }

__device__ void barrier_init(unsigned barrier) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
}

__device__ void load_stage(unsigned stage, unsigned barrier, const CopyTile& tile) {
  const auto bytes = static_cast<unsigned>(tile.bytes);
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(stage),
               "l"(tile.source), "r"(bytes), "r"(barrier)
               : "memory");
}

__device__ void await_stage(unsigned barrier, unsigned parity) {
  unsigned done = 0;
  while (done == 0) {
    asm volatile("{\n"
                 ".reg .pred arrived;\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 arrived, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, arrived;\n"
                 "}\n"
                 : "=r"(done)
                 : "r"(barrier), "r"(parity)
                 : "memory");
  }
}

__device__ void store_stage(unsigned stage, const CopyTile& tile) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(tile.destination), "r"(stage),
               "r"(static_cast<unsigned>(tile.bytes))
               : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/// Waits until all but the newest `stores_behind` stores have read their stages.
__device__ void await_stages_read() { asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(stores_behind) : "memory"); }

__device__ void await_stores() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

}  // namespace

#endif

/// Copies one tile at a time through shared memory, by the bulk copy engine of the multiprocessor. One thread of each block
/// issues the copies; the others only read descriptors. Tiles must be aligned to 16 bytes. Devices before compute capability 9.0
/// have no such engine, and the kernel is not launched there.
extern "C" __global__ void __launch_bounds__(terrace::bulk_threads) terrace_copy_bulk(const CopyTile* tiles, unsigned count) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) unsigned char stages[];
  __shared__ __align__(8) std::uint64_t barriers[bulk_stages];
  __shared__ CopyTile batch[terrace::bulk_threads];

  const unsigned first_stage = shared_address(stages);
  const unsigned first_barrier = shared_address(barriers);
  if (threadIdx.x == 0) {
    for (unsigned i = 0; i < bulk_stages; ++i) barrier_init(first_barrier + i * 8);
    // Make the barriers that this thread has written visible to the bulk copy engine.
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  // The number of loads that this block has made so far. It determines the stage of the next load and the parity of its round.
  // await_stage() uses the parity to detect whether the load has arrived.
  unsigned loads = 0;
  const unsigned block_tiles = blockIdx.x < count ? (count - blockIdx.x - 1) / gridDim.x + 1 : 0;
  for (unsigned begin = 0; begin < block_tiles; begin += blockDim.x) {
    const unsigned in_batch = min(blockDim.x, block_tiles - begin);
    if (threadIdx.x < in_batch) batch[threadIdx.x] = load(tiles + blockIdx.x + (begin + threadIdx.x) * gridDim.x);
    __syncthreads();
    if (threadIdx.x == 0) {
      const unsigned base = loads;
      const auto load_tile = [&](unsigned i) {
        const unsigned stage = (base + i) % bulk_stages;
        load_stage(first_stage + stage * bulk_tile_bytes, first_barrier + stage * 8, batch[i]);
      };
      for (unsigned i = 0; i < min(in_batch, bulk_stages); ++i) load_tile(i);
      for (unsigned i = 0; i < in_batch; ++i) {
        const unsigned stage = (base + i) % bulk_stages;
        await_stage(first_barrier + stage * 8, (base + i) / bulk_stages % 2);
        store_stage(first_stage + stage * bulk_tile_bytes, batch[i]);
        // The store of tile i - stores_behind has read its stage, so load the next tile into that stage.
        await_stages_read();
        if (i >= stores_behind && i - stores_behind + bulk_stages < in_batch) load_tile(i - stores_behind + bulk_stages);
      }
      await_stores();
      loads = base + in_batch;
    }
    __syncthreads();
  }
#else
  (void)tiles;
  (void)count;
#endif
}
