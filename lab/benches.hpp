#pragma once

#include "lab/room/room_model.hpp"
#include "lab/rows.hpp"
#include "terrace/block_store.hpp"
#include "terrace/device.hpp"
#include "terrace/options.hpp"
#include "terrace/types.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

namespace terrace::tools {

// The benches of `terrace-lab`. The compared subjects take turns in each round. Each bench prints the medians, and returns the
// report.

struct IndexBenchOptions {
  /// The numbers of cached blocks at which to measure. A trace is replayed with the first.
  std::vector<std::uint32_t> blocks = {10'000, 100'000, 1'000'000};
  unsigned rounds = 5;
  std::filesystem::path trace;  ///< empty: prompts of several lengths, without a trace
  std::uint32_t trace_block_tokens = 512;
  std::uint32_t block_tokens = 64;  ///< must divide trace_block_tokens: each hash id of the trace becomes several blocks
};

/// Measures the control plane, together with the baselines (index_subject.hpp) in the same run: at several sizes and lengths of
/// prompts, or over a trace, of which each request is one whole cycle with known keys.
///
/// Throws std::invalid_argument for invalid sizes, UsageError for a trace that cannot be read, and std::runtime_error if the
/// subjects disagree on the hits.
[[nodiscard]] Row bench_index(const IndexBenchOptions& options);

enum class BenchDevice : unsigned char {
  instant,   ///< copies happen in the call, on the calling thread
  emulated,  ///< copies happen on threads of their own
};
[[nodiscard]] std::string_view to_string(BenchDevice device);

struct StepBenchOptions {
  std::filesystem::path trace;
  std::uint32_t device_blocks = 40'000;
  std::vector<std::uint32_t> host_blocks = {0, 80'000};
  std::vector<EvictionPolicyName> policies = {EvictionPolicyName::lru, EvictionPolicyName::adaptive};
  InclusionPolicy inclusion = InclusionPolicy::lazy_exclusive;
  BenchDevice device = BenchDevice::instant;
  std::uint32_t trace_block_tokens = 512;
  std::uint32_t block_tokens = 64;  ///< must divide trace_block_tokens
  unsigned rounds = 5;
};

/// Measures the engine's thread over a trace, by call: what acquire(), commit(), the end of the lease, and all polls of a request
/// cost, waiting polls included, with each size of the host tier and each policy. Requests are served one at a time, and blocks
/// have nearly no bytes.
///
/// Throws as bench_index() does, and std::runtime_error if a request fails.
[[nodiscard]] Row bench_step(const StepBenchOptions& options);

struct KeysBenchOptions {
  std::vector<std::uint32_t> block_tokens{16, 32, 64, 128, 256};
  std::uint32_t prompt_tokens = 4096;
  std::uint32_t prompts = 16;
  unsigned rounds = 51;
};

/// Measures how long it takes to make keys from tokens, compared with the digests alone, for each size of block:
///
/// - digest: one SHA-256 digest by OpenSSL for each block; its message is made before;
/// - append: KeyChain::append.
///
/// Both are over the same prompts, in nanoseconds for each block. Throws std::invalid_argument if a prompt is shorter than a
/// block or if there is nothing to do.
[[nodiscard]] Row bench_keys(const KeysBenchOptions& options);

/// How large a probe is.
struct LinkProbeSize {
  Bytes area = MiB * 256;  ///< on each side; at least 16 MiB
  unsigned rounds = 5;
  unsigned ends = 1000;                ///< copies whose end is waited for
  unsigned kernel_milliseconds = 300;  ///< of the kernel beside which memory is pinned
};

struct LinkBenchOptions {
  std::optional<int> cuda = 0;  ///< the number of the GPU
  LinkProbeSize size{};
};

/// Prints the figures of measure_link(), and returns them as the report. Throws std::invalid_argument (sizes; a device that is no
/// GPU), and what measure_link() throws.
[[nodiscard]] Row bench_link(const LinkBenchOptions& options);

struct TransferBenchOptions {
  std::optional<int> cuda;  ///< the number of a CUDA device; empty: the emulated device
  std::vector<Bytes> block_bytes{KiB * 4, KiB * 16, KiB * 64, KiB * 256, MiB, MiB * 4};
  /// Bytes moved in each direction, in as many blocks of each size as fit. It should be much larger than the last-level cache.
  Bytes area_bytes = MiB * 256;
  std::uint32_t blocks = 0;  ///< blocks in each direction for every size, instead of area_bytes; 0: use area_bytes
  unsigned rounds = 9;
  TransferPieces pieces{};
  /// Layers of a block, for sizes that are a multiple of them; loads by layer are measured with these. 1: loads by layer are not
  /// measured.
  std::uint32_t layers = 32;
  /// The speed of the emulated device's link, per second and direction; 0: the speed of memory.
  BytesPerSecond link_bytes_per_second{};
};

/// Measures what ThreadedTransfers achieve on a device, for each size of block: the speed of copies and the cost of a block on
/// the control plane's thread, beside plain copies; how long an urgent block takes; how much full store lanes slow down a step of
/// compute; and when the first layers of a load arrive (transfer_measurements.hpp).
///
/// Throws std::invalid_argument for invalid sizes and for sizes that do not fit into memory, std::system_error if memory cannot
/// be allocated, std::runtime_error if the device does not answer.
[[nodiscard]] Row bench_transfer(const TransferBenchOptions& options);

struct RestartBenchOptions {
  std::filesystem::path directory;  ///< on the disk to measure; temporary files are removed
  std::uint32_t blocks = 1'000'000;
  std::uint32_t prefix_blocks = 16;  ///< blocks that each prompt adds to an earlier one
  unsigned rounds = 5;
  IoChoice io = IoChoice::automatic;
};

/// Measures how long it takes from a process start until a cache serves what an earlier process stored. It makes a store with
/// `blocks` blocks of 4 KiB once. In each round it reads only the store's catalog from end to end; opens only the store; and
/// opens a whole CacheSystem, which rebuilds its prefix tree.
///
/// Throws what bench_storage() throws.
[[nodiscard]] Row bench_restart(const RestartBenchOptions& options);

struct RoomBenchOptions {
  std::vector<std::filesystem::path> traces;
  std::uint64_t requests_max = 0;  ///< of each trace; 0: all
  std::vector<std::uint32_t> device_blocks = {3000, 10'000};
  double reserve_max = 0.15;
  std::vector<InclusionPolicy> inclusions = {InclusionPolicy::lazy_exclusive};
  EvictionPolicyName policy = EvictionPolicyName::adaptive;
  RoomModel model{};  ///< all but what is varied
};

/// Shows who waits for device slots, and for how long, with and without free slots ahead of requests: serves each trace at its
/// own clock in virtual time, by size of the device and by inclusion policy. Throws UsageError for a trace that cannot be read.
[[nodiscard]] Row bench_room(const RoomBenchOptions& options);

struct SharedBenchOptions {
  SharedStorage shared{.url = "memory:"};
  std::vector<Bytes> block_bytes{KiB * 64, KiB * 256, MiB, MiB * 4};
  Bytes area_bytes = MiB * 64;      ///< moved in each direction and round, in blocks of a size
  Bytes bytes_in_flight = MiB * 8;  ///< of blocks; one block is always allowed
  std::uint32_t rounds = 5;
};

/// Measures a shared store by the client that a cache uses: rates of writes and reads, the processor time of this process for
/// them, and the time of a probe for all blocks. The blocks have a fingerprint of their own, expire within a minute, and are
/// removed at the end.
///
/// Throws std::invalid_argument for sizes and URLs that cannot be used, std::runtime_error if the store cannot be used or
/// operations fail, and Interrupted after a signal.
[[nodiscard]] Row bench_shared(const SharedBenchOptions& options);

struct StorageBenchOptions {
  std::filesystem::path directory;  ///< on the disk to measure; temporary files are removed
  /// further directories, each on another disk; the store is striped over all of them
  std::vector<std::filesystem::path> stripes{};
  Bytes size = GiB;  ///< size of the store's blocks, and of the file for plain reads and writes
  std::vector<Bytes> block_bytes{KiB * 64, KiB * 256, MiB, MiB * 4};
  std::vector<unsigned> depths{1, 4, 16, 64};
  Bytes moved = MiB * 256;  ///< bytes moved in each measurement; at least eight times the depth
  unsigned rounds = 5;
  IoChoice io = IoChoice::automatic;
};

/// Measures a FileStore's reads and writes of blocks, in scattered order and with several under way at once. This includes
/// checksums, catalog and eviction. It compares them with the same I/O on the same file system and in the same order: by the
/// engine alone, without checksums; and plainly, by one thread with its own io_uring (without io_uring, by as many threads as
/// operations are under way, with pread and pwrite).
///
/// Throws std::invalid_argument for invalid sizes and for sizes that do not fit on the disk or into memory; UsageError if the
/// directory cannot be used; std::runtime_error if I/O fails; Interrupted.
[[nodiscard]] Row bench_storage(const StorageBenchOptions& options);

/// The defaults of bench_tier_store().
[[nodiscard]] inline StorageBenchOptions tier_store_bench_defaults() {
  return {.directory = ".", .size = MiB * 512, .block_bytes = {KiB * 64, MiB * 2}, .depths = {1, 16}, .moved = MiB * 128};
}

/// Measures a TierStore: puts and gets of blocks, one block in a batch and several batches under way at once, beside plain direct
/// I/O of the same sizes and depth in the same rounds; and contains() and leading() of 32 keys, beside a std::unordered_set. The
/// plain I/O has a file of its own. Nothing is flushed.
///
/// Throws what bench_storage() throws.
[[nodiscard]] Row bench_tier_store(const StorageBenchOptions& options);

struct OffloadBenchOptions {
  BenchDevice device = BenchDevice::instant;
  std::vector<Bytes> block_bytes{KiB * 64, MiB * 2};
  Bytes area_bytes = MiB * 128;       ///< bytes moved in each direction and round
  std::uint32_t small_blocks = 4096;  ///< blocks of the smallest size, for the cost of an order
  unsigned rounds = 7;
};

/// Measures an OffloadCache over a device whose memory belongs to the caller, with keys in flat and in prefix order: stores and
/// loads of blocks in orders of 32, and loads from memory in place of a disk, beside memcpy of the same blocks in the same
/// rounds; the same for blocks of 64 bytes, where nearly all the time is the cost of an order; questions about 32 keys, beside a
/// std::unordered_set; and orders that are refused because they exceed a bound. The host tier is full when the rounds begin, so
/// stores include evictions. Every block is compared after the first load.
///
/// Throws std::invalid_argument for invalid sizes and for sizes that do not fit into memory; std::runtime_error if a block is not
/// moved.
[[nodiscard]] Row bench_offload(const OffloadBenchOptions& options);

}  // namespace terrace::tools
