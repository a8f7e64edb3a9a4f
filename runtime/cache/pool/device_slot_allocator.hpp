#pragma once

#include "base/vector_pool.hpp"
#include "runtime/cache/pool/host_slot_allocator.hpp"
#include "runtime/cache/pool/pool_part.hpp"
#include "runtime/cache/pool/storage_writer.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace terrace {

/// Gives device slots to requests: free slots, or the slots of copies that it evicts. Quotas and the eviction policy choose these
/// copies (Quotas::victims). If a block must first be copied to the host or to staging, the request waits here; requests are
/// served in order of arrival. A promise can always be kept, even if the lower tiers are full: a copy for which the host and
/// staging have no room is dropped. If a request hits a copy that is being evicted, that copy stays and another one is evicted.
/// Threads: the manager's.
class DeviceSlotAllocator : PoolPart {
 public:
  /// Slots that a waiter gets, in state held: the next `slots` entries of the list that take_served() returns with it. `last`:
  /// the waiter has all its slots now.
  struct Served {
    std::uint32_t waiter = 0;
    std::uint32_t slots = 0;
    bool last = false;
  };

  DeviceSlotAllocator(const PoolPart& part, HostSlotAllocator& host_slots, StorageWriter& storage_writer)
      : PoolPart{part}, host_slots_{host_slots}, storage_writer_{storage_writer} {}

  /// Returns true if `slots` more slots can be promised: at least this many slots are free or hold unpinned copies, and are not
  /// promised yet.
  [[nodiscard]] bool can_promise(std::uint64_t slots) const;
  /// Appends up to `count` slots that are free now and not promised. If possible, they are adjacent, and follow `after`.
  void take_free(std::uint32_t count, std::optional<SlotId> after, std::vector<SlotId>& out);
  /// For a caller that cannot wait. Chooses copies to be dropped without being saved, until they would free `slots` slots, and
  /// marks them as evicting. Among the next few victims it prefers a copy that the host or storage has, too. Returns false if too
  /// few copies can be dropped now. A caller with several groups makes one call for each, and their copies add up. Then it calls
  /// give_up_chosen(), which drops all chosen copies, or keep_chosen(), which leaves them as they were.
  [[nodiscard]] bool choose(std::uint32_t slots, Quotas::Asker asker);
  void give_up_chosen();
  void keep_chosen();
  /// Appends `slots` slots to `out` and returns true, if enough slots are free and not promised, or hold victims that can be
  /// dropped at once. Otherwise appends the slots that are available, promises the rest to the waiter, which gets them as they
  /// become free, and returns false. Call it only if can_promise(slots).
  [[nodiscard]] bool take_or_wait(std::uint32_t waiter, std::uint32_t slots, TenantId tenant, std::vector<SlotId>& out);
  /// The waiter needs no more slots.
  void leave(std::uint32_t waiter);
  /// Evicts a copy that is ready and not pinned, in the same way as for a request, although no request waits for the slot.
  /// Returns false if the block must be stored first, and cannot be stored now.
  [[nodiscard]] bool give_up(BlockRef block);
  /// Evicts some of the next victims, at most `slots`, although no request waits for slots. Returns how many evictions it began.
  std::uint32_t evict_ahead(std::uint32_t slots);
  /// Evicts copies for the waiters, and serves them free slots. It stops when a waiter has all its slots, because that waiter may
  /// give some of them back. Returns true if anything changed.
  bool pump();
  [[nodiscard]] bool has_served() const { return !served_.empty(); }
  /// Returns the waiters that have got slots since the last call, in order, and these slots.
  void take_served(std::vector<Served>& served, std::vector<SlotId>& slots) {
    take_all(served_, served);
    take_all(served_slots_, slots);
  }

  [[nodiscard]] bool idle() const { return waiters_.empty(); }
  [[nodiscard]] std::uint64_t promised() const { return promised_; }
  /// Slots that are promised to this waiter; 0 if it does not wait.
  [[nodiscard]] std::uint32_t promised_to(std::uint32_t waiter) const;
  /// Number of promised slots that no eviction under way will free. `evicting_ahead` of the evictions under way do not count:
  /// they were begun ahead of need, and their transfers are not urgent yet.
  [[nodiscard]] std::uint64_t missing(std::uint64_t evicting_ahead) const;

 private:
  struct Waiter {
    std::uint32_t id = 0;
    std::uint32_t slots = 0;
    TenantId tenant;
  };
  /// The tenant of the waiter that gets the next slot if `on_their_way` evictions are under way, and the number of slots that
  /// this waiter still needs. Waiters get slots in order of arrival.
  [[nodiscard]] Quotas::Asker asker_behind(std::uint64_t on_their_way) const;
  [[nodiscard]] std::uint32_t victims_max(std::uint64_t wanted) const;

  static constexpr std::size_t skipped_max = 8;

  /// The number of evictions under way that serve `slots` slots for requests: ManagerConfig::evictions_in_flight_max at most.
  [[nodiscard]] std::uint64_t evictions_for(std::uint64_t slots) const {
    const std::uint64_t most = config_.evictions_in_flight_max;
    return most == 0 ? slots : std::min(slots, most);
  }
  [[nodiscard]] bool inclusive() const { return config_.inclusion == InclusionPolicy::inclusive; }

  [[nodiscard]] std::optional<BlockRef> choose_one(Quotas::Asker asker);
  bool evict_without_host_copy(BlockRef block, SwapOutPurpose purpose);
  std::uint32_t evict(Run victims, SwapOutPurpose purpose);
  [[nodiscard]] bool can_be_dropped(Tier below) const;
  std::uint32_t drop_without_copying(Run victims);
  void evict_for(std::uint32_t slots, TenantId tenant);
  /// Returns true if there is a host tier, or if copies are left of a host tier whose size is 0 now. Host copies may depend on
  /// device copies.
  [[nodiscard]] bool host_tier() const { return residency_.host_blocks() > 0 || residency_.tree().resident(Tier::host) > 0; }
  [[nodiscard]] Tier highest_below(BlockRef block) const;
  [[nodiscard]] Run alike_at_end(Run victims, Tier below) const;
  [[nodiscard]] bool wants_host(BlockRef block) const;

  HostSlotAllocator& host_slots_;
  StorageWriter& storage_writer_;
  std::vector<Waiter> waiters_;  ///< in order of arrival; few, so erasing from the front is cheap
  std::uint64_t promised_ = 0;
  std::vector<BlockRef> chosen_;      ///< copies that choose() has marked as evicting, children before their parents
  std::vector<BlockRef> skipped_;     ///< scratch
  std::vector<Served> served_;        ///< not taken yet
  std::vector<SlotId> served_slots_;  ///< the slots of served_, one after the other
};

}  // namespace terrace
