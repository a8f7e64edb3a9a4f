#include "runtime/manager/cache_manager.hpp"

#include "base/check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace terrace {

CacheManager::CacheManager(const ManagerConfig& config) : config_{config} {
  validate(config);
  std::vector<GroupConfig> groups = config.groups;
  if (groups.empty()) groups.emplace_back();
  unit_tokens_ = hash_unit(groups);
  for (const GroupConfig& group : groups) rules_.emplace_back(group, unit_tokens_);
  alignment_ = hit_alignment(rules_);
  single_ = rules_.size() == 1 && rules_.front().chained();
  for (std::size_t number = 0; number < config.pool_count(); ++number) {
    const PoolId id{static_cast<std::uint16_t>(number)};
    pools_.push_back(std::make_unique<TieredPool>(id, config, config.pool(id), stats_, kv_events_, write_budget_));
  }
  write_backs_ = std::make_unique<WriteBackJobs>(pools_, config.write_back_blocks_ahead);
  write_budget_.limit(config.daily_write_bytes);
  pinned_.resize(pools_.size());
  needs_.resize(pools_.size());
  used_.resize(pools_.size());
  hits_.resize(rules_.size());
  load_parts_.resize(rules_.size());
}

// ---- what happened elsewhere ---------------------------------------------------------------------------------------------

void CacheManager::on_transfer(TransferEvent event) {
  const auto pool = std::ranges::find_if(pools_, [&](const auto& each) { return each->on_transfer(event); });
  TERRACE_CHECK(pool != pools_.end());
  handle_events(**pool);
}

void CacheManager::on_store(const StoreEvent& event, PoolId pool) {
  at(pool).on_store(event);
  handle_events(at(pool));
}

void CacheManager::on_time(TimePoint now) {
  now_ = std::max(now_, now);
  use_clock_.note(now_, last_stamp_);
  write_budget_.on_time(now_);
  for (const auto& pool : pools_) {
    pool->on_time(now_);
    handle_events(*pool);
  }
  write_backs_->on_time(now_);
  while (!deadlines_.empty() && deadlines_.top().priority <= now) fail(deadlines_.top().handle, Errc::deadline_exceeded);
  for (auto pin = pins_.begin(); pin != pins_.end();) {
    const auto next = std::next(pin);
    if (pin->second.until <= now) end_pin(pin);
    pin = next;
  }
  for (auto retention = retentions_.begin(); retention != retentions_.end();) {
    const auto next = std::next(retention);
    if (retention->second.until <= now) end_retention(retention);
    retention = next;
  }
}

void CacheManager::settle() {
  for (bool again = true; again;) {
    again = !to_replan_.empty();
    replan_failed();
    for (const auto& pool : pools_) {
      again |= pool->pump();
      handle_events(*pool);
    }
    again |= write_backs_->pump();
  }
  const bool all_gone = std::ranges::none_of(pools_, [](const auto& pool) { return pool->any_hidden(); });
  if (status_ == CacheStatus::clearing && all_gone) status_ = CacheStatus::cleared;
  flush();
}

void CacheManager::flush() {
  for (const auto& pool : pools_) pool->flush(last_transfer_);
}

void CacheManager::remember_freed() {
  for (const auto& pool : pools_) pool->remember_freed();
}

void CacheManager::take_freed(std::vector<SlotId>& device, std::vector<SlotId>& arena, PoolId pool) {
  at(pool).take_freed(device, arena);
}

void CacheManager::overwritten_by(std::span<const SlotId> device, Fence fence, PoolId pool) {
  at(pool).overwritten_by(device, fence);
}

// ---- what to know --------------------------------------------------------------------------------------------------------

TimePoint CacheManager::next_deadline() const {
  TimePoint next = deadlines_.empty() ? never : deadlines_.top().priority;
  next = std::min(next, write_backs_->next_deadline());
  for (const auto& pool : pools_) next = std::min(next, pool->next_deadline());
  for (const auto& [id, pin] : pins_) next = std::min(next, pin.until);
  for (const auto& [id, retention] : retentions_) next = std::min(next, retention.until);
  return next;
}

bool CacheManager::has_pending_work() const {
  return write_backs_->wants_pump() || !std::ranges::all_of(pools_, [](const auto& pool) { return pool->idle(); });
}

std::string CacheManager::describe_pending() const {
  std::string text = fmt::format("{} requests, {} quarantined", by_id_.size(), quarantined_.size());
  for (const auto& pool : pools_) text += "; " + pool->describe_pending();
  return text;
}

std::string CacheManager::describe_tree(std::size_t lines_max) const {
  std::string text;
  for (const auto& pool : pools_) text += pool->describe_tree(lines_max);
  return text;
}

std::uint64_t CacheManager::readers() const {
  std::uint64_t readers = 0;
  for (const auto& pool : pools_) readers += pool->readers();
  return readers;
}

std::size_t CacheManager::bytes_held() const {
  std::size_t bytes = 0;
  for (const auto& pool : pools_) bytes += pool->bytes_held();
  return bytes;
}

void CacheManager::check_invariants() const {
  write_backs_->check_invariants();
  std::vector<std::uint64_t> held(pools_.size());
  std::uint64_t live = 0;
  for (const Request& r : requests_) {
    if (r.state == State::unused) continue;
    ++live;
    const SlotState state = r.quarantined_until ? SlotState::quarantined : SlotState::held;
    for (const auto& [pool, slot] : own_slots(r)) {
      TERRACE_CHECK(residency(pool).pool(Tier::device).state(slot) == state);
      if (!r.quarantined_until) ++held[pool.value()];
    }
    for (std::size_t g = 0; g < rules_.size(); ++g) {
      const GroupPart& part = r.parts[g];
      const TieredPool& pool = pool_of(g);
      if (r.state == State::failed) TERRACE_CHECK(part.prefix.length == 0 && part.unchained.empty());
      const bool told = r.state == State::loading && r.layers > 0;
      for (std::uint32_t i = part.first; told && i < part.end; ++i) {
        TERRACE_CHECK(pool.residency().copy(hit_block(part, g, i), Tier::device).slot() == part.table[i]);
      }
      if (r.state != State::ready) continue;
      TERRACE_CHECK(part.prefix.length <= part.table.size());
      for (std::uint32_t i = 0; i < part.prefix.length; ++i) {
        TERRACE_CHECK(pool.residency().copy({part.prefix.node, i}, Tier::device).usable());
      }
      for (const UnchainedBlock& unchained_block : part.unchained) {
        const Copy copy = pool.residency().copy(unchained_block.prefix.last(), Tier::device);
        TERRACE_CHECK(copy.usable());
        TERRACE_CHECK(unchained_block.duplicate || copy.slot() == part.table[unchained_block.block]);
      }
    }
    // One that was told of layers may have compute under way that writes its new blocks.
    const bool holds_room = r.state != State::failed || r.layers > 0;
    if (!holds_room) TERRACE_CHECK(std::ranges::all_of(r.own, [](const auto& own) { return own.empty(); }));
  }
  TERRACE_CHECK(live == by_id_.size() + quarantined_.size());
  for (std::size_t pool = 0; pool < pools_.size(); ++pool) {
    if (live == 0) TERRACE_CHECK(pools_[pool]->device_slots().promised() == 0);
    pools_[pool]->check_invariants(held[pool], live == 0 && pins_.empty());
  }
}

}  // namespace terrace
