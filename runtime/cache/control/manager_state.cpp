#include "runtime/cache/control/manager_state.hpp"

namespace terrace {
namespace {

ManagerConfig checked(ManagerConfig config) {
  validate(config);
  // Without caching there are no hits. So everything that is committed is written.
  WritePolicy& writes = config.shared.writes;
  if (config.store_uncached && writes == WritePolicy::selective) writes = WritePolicy::write_through;
  return config;
}

}  // namespace

ManagerState::ManagerState(const ManagerConfig& wanted) : config{checked(wanted)}, groups{*this} {
  write_budget.limit(config.daily_write_bytes);
}

void ManagerState::expect(TieredPool& pool, Prefix prefix, Duration in) {
  ++(in == no_use ? stats.sessions_ended : stats.uses_expected);
  const std::optional<ExpectedUse> use = pace.expected(last_stamp, in);
  if (!use || pool.expect(prefix, *use) == 0) ++stats.expected_ignored;
}

void ManagerState::set_shared_usable(bool usable) {
  shared_usable = usable;
  for (TieredPool* const pool : groups.pools()) {
    if (SharedWriter* const writer = pool->shared_writer()) writer->set_usable(usable);
  }
}

}  // namespace terrace
