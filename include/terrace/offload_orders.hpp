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

/// The types of OffloadCache: orders, results and counts. All of them are plain data.

/// Names a job. The caller chooses the number. No two live jobs of a cache have the same id. A job lives until its event `ended`
/// has been returned by OffloadCache::poll().
using OffloadJobId = StrongId<struct OffloadJobIdTag, std::uint64_t>;

/// The state of a block in the cache.
enum class OffloadHit : std::uint8_t {
  miss,
  pending,  ///< a store or a read is copying it to the host tier; a load waits for it
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
  /// `flat`: each key names an unchained block, even in a cache in prefix order. All calls for a block must use the same order.
  KeyOrder key_order = KeyOrder::prefix;
  /// Only for stores, of keys that stand alone in a cache in prefix order: the keys of a prefix. The blocks of the order are of
  /// use only together with the last keys.size() blocks of this prefix, each with one of them: for example the chunks of a
  /// sliding window, with those of full attention at the same place. Such a *companion* stays in the host tier as long as the
  /// block to which it belongs, if that is there when the order comes; uses of its own do not count.
  std::span<const BlockKey> beside{};
  /// In prefix order, the job moves the blocks from this index on. The keys before it only determine the position of these
  /// blocks.
  std::uint32_t first = 0;
  /// Device slots: one for each moved block. Give either slots or memory. A load with neither copies the blocks only to the host
  /// tier. Orders for reserve() have neither.
  std::span<const SlotId> slots{};
  /// Host memory: one span for each moved block, with the size of exactly one block.
  std::span<const std::span<std::byte>> memory = {};
  PoolId pool{};
  /// In prefix order: a number of OffloadCache::new_use(). All orders with the same number are one use of their blocks, so give
  /// it to all orders of one request of the engine. 0: the order is a use of its own. Then a request that stores its prefix in
  /// pieces seems to use the prefix again and again, and the eviction policy learns that it comes back.
  std::uint64_t use = 0;
  /// Stored with new blocks, for statistics, quotas and write-back jobs.
  TenantId tenant{};
  Urgency urgency = Urgency::request;
  TimePoint deadline = never;
  /// No named device slot is read or written before the compute of the device has reached this point.
  Fence after{};
  /// Only for loads: report leading layers (OffloadEvent::Kind::layers).
  bool by_layer = false;
  /// Only for loads: read blocks that no tier has from the shared store. Set it for blocks that find() has just counted. A block
  /// that is no longer there, is damaged, or is late, fails like a block that storage cannot read.
  bool shared = false;
};

/// The result of OffloadCache::find().
struct OffloadFound {
  std::uint32_t blocks = 0;  ///< leading keys that have a copy, here or in the shared store
  /// True if the shared store was asked for further keys and has not answered. Call poll(), and then find() again.
  bool looking = false;

  friend bool operator==(const OffloadFound&, const OffloadFound&) = default;
};

/// Reports the progress of a job.
struct OffloadEvent {
  enum class Kind : std::uint8_t {
    block,   ///< the result of one block: nothing touches its slot or memory any more
    layers,  ///< OffloadEvent::layers leading layers of all blocks have arrived
    ended,   ///< the last event of a job; its id is free
  };

  Kind kind = Kind::block;
  OffloadJobId job{};
  /// For `block`: the index of its key in OffloadOrder::keys.
  std::uint32_t block = 0;
  /// For `block`: why it was not moved. For a load: not_found (the cache has no copy), deadline_exceeded, cancelled, corrupt,
  /// io_failed, full (a load to the host tier: every copy there is in use), or another error of the store or the device; the
  /// content of the slot is then undefined. For a store: full (no host slot), parent_missing, deadline_exceeded, cancelled,
  /// io_failed. For `ended`: the error of the first block that failed.
  ErrorCode error{};
  /// For `block` of a load without an error: the source of the block.
  Source source = Source::host;
  std::uint32_t layers = 0;  ///< for `layers`
  std::uint32_t moved = 0;   ///< for `ended`: number of blocks without an error
  std::uint32_t failed = 0;  ///< for `ended`: number of blocks with an error

  friend bool operator==(const OffloadEvent&, const OffloadEvent&) = default;
};

/// Counts since construction. They only grow.
struct OffloadTotals {
  std::uint64_t jobs = 0;
  std::uint64_t refused = 0;      ///< orders that were refused, for any reason
  std::uint64_t loaded_host = 0;  ///< number of blocks, as are the following counts
  std::uint64_t loaded_storage = 0;
  std::uint64_t load_misses = 0;    ///< the cache had no copy when the load reached the block
  std::uint64_t load_failures = 0;  ///< any other error
  std::uint64_t stored = 0;         ///< copied to the host tier
  std::uint64_t already_there = 0;  ///< stores of blocks that were cached, stored, or brought by another job
  std::uint64_t store_full = 0;
  std::uint64_t store_failures = 0;  ///< any other error
  std::uint64_t joined = 0;          ///< blocks that waited for the copy of another job
  std::uint64_t late = 0;            ///< blocks with deadline_exceeded
  std::uint64_t unconfirmed = 0;     ///< the part of `late` whose deadline passed during the copy over the link
  std::uint64_t loaded_shared = 0;
  // Blocks that were ordered. When no job is alive, `loads` is the sum of loaded_host, loaded_storage, loaded_shared, load_misses
  // and load_failures, and `stores` is the sum of stored, already_there, store_full and store_failures.
  std::uint64_t loads = 0;
  std::uint64_t stores = 0;
  // Queries: OffloadCache::look_up, leading and bitmap, and find() once it has an answer. An engine that moves blocks itself may
  // ask again and again before it does: once it has used slots of the host tier, the blocks that it pins and reserves count
  // instead.
  std::uint64_t asked = 0;  ///< keys
  std::uint64_t found = 0;  ///< the part of `asked` that are hits; for leading() and find(), only the leading hits
};

/// The bounds of an OffloadCache. An order that exceeds one is refused.
struct OffloadLimits {
  std::uint32_t jobs = 4096;               ///< jobs that have not ended
  std::uint32_t blocks_in_flight = 65536;  ///< blocks of all jobs that have no result yet
  /// blocks of all pins together; the blocks of all reservations together have the same limit
  std::uint32_t pinned_blocks = 65536;
};

}  // namespace terrace
