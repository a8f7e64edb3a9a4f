#include "tools/replay/engine/slot_reserve.hpp"

#include "base/check.hpp"
#include "runtime/manager/cache_manager.hpp"

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
  take();
}

void SlotReserve::give() { cache_.release(std::move(lease_), no_longer_used); }

void SlotReserve::take() {
  AcquireRequest wanted;
  wanted.id = reserve_id;
  wanted.units = HashUnits{slots_};
  Result<Lease> lease = cache_.acquire(wanted);
  TERRACE_CHECK(lease.has_value());
  lease_ = std::move(*lease);
  ++requests_;
  if (cache_.state(lease_) == RequestState::ready) return;
  const Result<void> ready = cache_.wait(lease_);
  TERRACE_CHECK(ready.has_value());
}

}  // namespace terrace::tools
