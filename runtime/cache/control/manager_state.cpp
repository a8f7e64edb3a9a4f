#include "runtime/cache/control/manager_state.hpp"

namespace terrace {

ManagerState::ManagerState(const ManagerConfig& wanted)
    : config{(validate(wanted), wanted)}, groups{config, stats, shared, kv_events, write_budget, offload_totals, link} {
  write_budget.limit(config.daily_write_bytes);
}

}  // namespace terrace
