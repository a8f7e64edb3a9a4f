#pragma once

#include "terrace/clock.hpp"
#include "terrace/device.hpp"
#include "terrace/policies.hpp"
#include "terrace/result.hpp"
#include "terrace/types.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace terrace {

/// The vocabulary of OffloadCache: orders, results and counts. All of it is plain data.

/// Names a job. The caller chooses the number. No two live jobs of a cache have the same id. A job lives until its event `ended`
/// has been returned by OffloadCache::poll().
using OffloadJobId = StrongId<struct OffloadJobIdTag, std::uint64_t>;

/// The state of a block in the cache.
enum class OffloadHit : std::uint8_t {
  miss,
  pending,  ///< it is on its way to the host tier, by a store or by a read; a load waits for it
  host,
  storage,
};

/// Stands for no host slot (OffloadCache::reserve, OffloadCache::pin).
inline constexpr SlotId no_host_slot{0xFFFF'FFFF};

/// An order to load blocks into device slots or memory of the caller, or to store blocks from there. The spans must stay valid
/// only during the call; the slots and the memory belong to the job until the result of their block.
struct OffloadOrder {
  OffloadJobId id{};
  /// The key of each block. In prefix order (KeyOrder::prefix) these are the keys of a prefix, from its first block on,
  /// made of names that are chained hashes, or by KeyChain::append_opaque.
  std::span<const BlockKey> keys{};
  /// `flat`: each of the keys stands alone, also in a cache in prefix order. A block stands in one way, and every call says so.
  KeyOrder key_order = KeyOrder::prefix;
  /// In prefix order, the job moves the blocks from this index on; the keys before it say only where they belong.
  std::uint32_t first = 0;
  /// Device slots: one for each moved block. Of slots and memory exactly one is given. A load with neither brings the blocks to
  /// the host tier, and no further. Orders for reserve() have neither.
  std::span<const SlotId> slots{};
  /// Host memory, exactly one block each: one for each moved block.
  std::span<const std::span<std::byte>> memory = {};
  PoolId pool{};
  /// Stored with new blocks, for statistics, quotas and write-back jobs.
  TenantId tenant{};
  Urgency urgency = Urgency::request;
  TimePoint deadline = never;
  /// No named device slot is read or written before the compute of the device has reached this point.
  Fence after{};
  /// Only for loads: report leading layers (OffloadEvent::Kind::layers).
  bool by_layer = false;
  /// Only for loads: read blocks that no tier has from the shared store. For blocks that find() has just counted. A block that is
  /// not there any more, is damaged, or is late, fails like one that storage cannot read.
  bool shared = false;
};

/// An answer of OffloadCache::find().
struct OffloadFound {
  std::uint32_t blocks = 0;  ///< leading keys of which there is a copy, here or in the shared store
  /// The shared store was asked for more of the keys, and has not answered: call poll(), and ask again.
  bool looking = false;

  friend bool operator==(const OffloadFound&, const OffloadFound&) = default;
};

/// A report of a job.
struct OffloadEvent {
  enum class Kind : std::uint8_t {
    block,   ///< the result of one block: nothing touches its slot or memory any more
    layers,  ///< this many leading layers of all blocks have arrived
    ended,   ///< the last event of a job; its id is free
  };

  Kind kind = Kind::block;
  OffloadJobId job{};
  /// For `block`: the index of its key in OffloadOrder::keys.
  std::uint32_t block = 0;
  /// For `block`: why it was not moved. Of a load: not_found (the cache has no copy), deadline_exceeded, cancelled, corrupt,
  /// io_failed, full (of a load to the host tier: every copy there is in use), or another error of the store or the device. Then
  /// the content of the slot means nothing. Of a store: full (no
  /// host slot), parent_missing, deadline_exceeded, cancelled, io_failed. For `ended`: the error of the first block that failed.
  ErrorCode error{};
  /// For `block` of a load without an error: where it came from.
  Source source = Source::host;
  std::uint32_t layers = 0;  ///< for `layers`
  std::uint32_t moved = 0;   ///< for `ended`: blocks without an error
  std::uint32_t failed = 0;  ///< for `ended`: blocks with one

  friend bool operator==(const OffloadEvent&, const OffloadEvent&) = default;
};

/// Counts since construction. They only grow.
struct OffloadTotals {
  std::uint64_t jobs = 0;
  std::uint64_t refused = 0;      ///< orders, for any reason
  std::uint64_t loaded_host = 0;  ///< blocks; so are the counts after it
  std::uint64_t loaded_storage = 0;
  std::uint64_t load_misses = 0;    ///< the cache had no copy when the load came to it
  std::uint64_t load_failures = 0;  ///< any other error
  std::uint64_t stored = 0;         ///< copied to the host tier
  std::uint64_t already_there = 0;  ///< stores of blocks that were cached, stored, or brought by another job
  std::uint64_t store_full = 0;
  std::uint64_t store_failures = 0;  ///< any other error
  std::uint64_t joined = 0;          ///< blocks that waited for the copy of another job
  std::uint64_t late = 0;            ///< blocks with deadline_exceeded
  std::uint64_t unconfirmed = 0;     ///< of those, blocks whose deadline passed while they crossed the link
  std::uint64_t loaded_shared = 0;
  // Blocks that were ordered. When no job is alive, `loads` is the sum of the loaded ones, load_misses and load_failures, and
  // `stores` is the sum of stored, already_there, store_full and store_failures.
  std::uint64_t loads = 0;
  std::uint64_t stores = 0;
  // Questions: OffloadCache::look_up, leading, bitmap, and find() once its answer is there.
  std::uint64_t asked = 0;  ///< keys
  std::uint64_t found = 0;  ///< of those, keys that hit; for leading() and find(), the leading ones that do
};

/// The bounds of an OffloadCache. An order that exceeds one is refused.
struct OffloadLimits {
  std::uint32_t jobs = 4096;               ///< that live
  std::uint32_t blocks_in_flight = 65536;  ///< without a result, of all jobs
  std::uint32_t pinned_blocks = 65536;     ///< of all pins; and, counted apart, the blocks of all reservations
};

}  // namespace terrace
