// Stores whose device may fail for a while.
#include "base/check.hpp"
#include "storage/guarded_store.hpp"
#include "tests/simulation/world.hpp"

#include <chrono>
#include <utility>

namespace terrace::test {

/// Back-offs and breaks as long as the steps of time are: both pass within a run.
std::unique_ptr<BlockStore> World::guard(std::unique_ptr<BlockStore> store) {
  if (!options_.guarded || store == nullptr) return store;
  using std::chrono::milliseconds;
  Random random{options_.stored_blocks + 77ULL};
  GuardOptions options;
  options.read_retries = static_cast<std::uint32_t>(random.below(3));
  options.write_retries = static_cast<std::uint32_t>(random.below(3));
  options.back_off_first = milliseconds{random.between(1, 20)};
  options.back_off_max = options.back_off_first * 4;
  options.waiting_max = static_cast<std::uint32_t>(random.between(0, 8));
  options.breaker.failures_max = static_cast<std::uint32_t>(random.between(1, 3));
  options.breaker.probe_first = milliseconds{random.between(5, 50)};
  options.breaker.probe_max = options.breaker.probe_first * 4;
  bare_stores_.push_back(std::move(store));
  return std::make_unique<GuardedStore>(*bare_stores_.back(), clock_, options);
}

void World::see_guards() {
  for (const auto& store : stores_) {
    const auto* const guarded = dynamic_cast<const GuardedStore*>(store.get());
    if (guarded == nullptr) continue;
    const StoreHealth health = guarded->health();
    TERRACE_CHECK(health.waiting == 0 && guarded->in_flight() == 0);
    seen_->retried += health.retried;
    seen_->breakers_opened += health.opened;
    seen_->declined += health.declined;
  }
}

}  // namespace terrace::test
