#include "tools/replay/engine/slot_reserve.hpp"

#include "base/check.hpp"
#include "runtime/cache/control/cache_manager.hpp"

#include <limits>
#include <utility>

namespace terrace::tools {
namespace {

/// No request of a trace has this id.
constexpr RequestId reserve_id{std::numeric_limits<RequestId::rep>::max()};

}  // namespace

SlotReserve::SlotReserve(Cache& cache, std::uint32_t slots) : cache_{cache}, slots_{slots} {
  const Result<void> resized = cache_.resize(Tier::device, Blocks{cache_.manager().config().pool({}).device_blocks + slots_});
  TERRACE_CHECK(resized.has_value());
  (void)take();
}

void SlotReserve::give() { cache_.release(std::move(lease_), no_longer_used); }

bool SlotReserve::take() {
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

}  // namespace terrace::tools
