#pragma once

#include "base/check.hpp"
#include "runtime/cache/control/cache_manager.hpp"
#include "terrace/cache.hpp"

#include <cstdint>
#include <limits>
#include <utility>

namespace terrace::tools {

/// Additional device slots that the driver of a reference run holds, so that the cache cannot use them. With `exclusive` copies a
/// hit frees its host slot when it is loaded. The reserve lets a request load its hits before any block is evicted to the host,
/// so that evicted blocks find these host slots free:
///
///     give()   the reserve's slots are free
///     ...      a request acquires its blocks in them, and is ready
///     take()   the cache evicts as many blocks as the request took slots, and their copies to the host have ended
///
/// Between take() and give() the cache can use the slots that it was configured with. Threads: the cache's.
class SlotReserve {
 public:
  /// Adds `slots` slots to the device tier and takes them, if it can. `cache` must outlive this object. The device must have
  /// memory for these slots in addition to the configured ones.
  SlotReserve(Cache& cache, std::uint32_t slots) : cache_{cache}, slots_{slots} {
    const Result<void> resized = cache_.resize(Tier::device, Blocks{cache_.manager().config().pool({}).device_blocks + slots_});
    TERRACE_CHECK(resized.has_value());
    (void)take();
  }

  void give() { cache_.release(std::move(lease_), no_longer_used); }
  /// Does nothing if the slots are taken. Returns false if an operator has paused or cleared the cache; then it must be tried
  /// again before the next give().
  [[nodiscard]] bool take() {
    AcquireRequest wanted;
    wanted.id = reserve_id;
    wanted.units = HashUnits{slots_};
    while (!lease_) {
      Result<Lease> lease = cache_.acquire(wanted);
      // After a clear, slots may still be in use by what was under way.
      TERRACE_CHECK(lease || lease.error() == Errc::paused || lease.error() == Errc::no_room);
      if (!lease) return false;
      ++requests_;
      const Result<void> ready = cache_.wait(*lease);
      if (ready) {
        lease_ = std::move(*lease);
        break;
      }
      cache_.release(std::move(*lease), no_longer_used);
      if (ready.error() != Errc::cleared) return false;
    }
    return true;
  }
  /// The number of requests that take() has acquired so far. The cache's counts of requests include them.
  [[nodiscard]] std::uint64_t requests() const { return requests_; }

 private:
  /// No request of a trace has this id.
  static constexpr RequestId reserve_id{std::numeric_limits<RequestId::rep>::max()};

  Cache& cache_;
  const std::uint32_t slots_;
  Lease lease_;
  std::uint64_t requests_ = 0;
};

}  // namespace terrace::tools
