#include "base/check.hpp"
#include "runtime/cache/control/cache_manager.hpp"
#include "tests/runtime/offload/offload_world.hpp"
#include "tests/simulation/run_worlds.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

/// The shared store of a world: it evicts, loses, delays, damages, stops and dies, and survives the process.

namespace terrace::test {

OffloadWorldOptions shared_offload_options(std::uint64_t seed) {
  OffloadWorldOptions options = random_offload_options(seed);
  options.shared = true;
  options.shared_fails = seed % 2 == 0;
  options.staging_blocks = std::max(options.staging_blocks, 2U);
  if (!options.exact) return options;
  // A hit in the shared store is never certain.
  options.exact = false;
  options.host_blocks = 4;
  return options;
}

void OffloadWorld::configure_shared(SharedConfig& shared) {
  using std::chrono::milliseconds;
  constexpr std::array policies{WritePolicy::none, WritePolicy::selective, WritePolicy::write_through,
                                WritePolicy::write_through};
  shared.on = true;
  shared.writes = policies[random_.below(policies.size())];
  shared.selective_hits = static_cast<std::uint32_t>(random_.between(1, 2));
  shared.probe_timeout = milliseconds{random_.between(5, 40)};
  shared.miss_lifetime = milliseconds{random_.below(100)};
  shared.read_timeout = milliseconds{random_.between(5, 100)};
  shared.write_timeout = milliseconds{random_.between(5, 200)};
  shared.renew_interval = milliseconds{random_.between(1, 500)};
  shared.rest = milliseconds{random_.between(1, 100)};
  if (random_.chance(0.3)) shared.writing_bytes_max = Bytes{random_.between(1, 20'000)};
  if (random_.chance(0.2)) shared.daily_write_bytes = KiB * random_.between(4, 400);
}

void OffloadWorld::disturb_shared() {
  using NodeState = SimulatedSharedEngine::NodeState;
  if (!options_.shared_fails) {
    if (random_.chance(0.3)) shared_engine_->evict_one();
    return;
  }
  const auto node = static_cast<std::uint32_t>(random_.below(shared_engine_->nodes()));
  switch (random_.below(8)) {
    case 0: return shared_engine_->set_node(node, NodeState::stalled);
    case 1: return shared_engine_->set_node(node, NodeState::dead, SimulatedSharedEngine::Data::lost);
    case 2:
    case 3: return shared_engine_->set_all_nodes(NodeState::well);
    case 4: return shared_engine_->set_full(random_.chance(0.3));
    case 5: return shared_engine_->evict_one();
    case 6: return shared_engine_->set_faults({});
    default: break;
  }
  SimulatedSharedFaults faults;
  faults.draw(random_);
  shared_engine_->set_faults(faults);
}

/// Asks like a scheduler, until there is an answer, and then loads the blocks that were found.
void OffloadWorld::ask() {
  if (winding_down_) return;
  if (asked_.empty()) asked_ = random_names();
  const OffloadFound found = find(asked_, offload_->leading(keys_of(asked_), {}, order_of(asked_)));
  if (found.looking) return;
  found_ = std::exchange(asked_, {});
  found_.resize(found.blocks);
}

OffloadFound OffloadWorld::find(const std::vector<Name>& names, std::uint32_t leading) {
  const std::vector<BlockKey> keys = keys_of(names);
  const OffloadFound found = offload_->find(keys, {}, order_of(names));
  note(found.blocks + (found.looking ? 100 : 0));
  TERRACE_CHECK(found.blocks >= leading && found.blocks <= keys.size());
  if (!options_.shared) TERRACE_CHECK(found == (OffloadFound{leading, false}));
  if (found.looking) TERRACE_CHECK(found.blocks == leading && leading < keys.size());
  seen_.looking += found.looking ? 1 : 0;
  seen_.found_shared += found.blocks - leading;
  return found;
}

SharedTotals OffloadWorld::shared_totals() const {
  SharedTotals all = cache_->shared_totals();
  add_counts(all, shared_before_);
  return all;
}

}  // namespace terrace::test
