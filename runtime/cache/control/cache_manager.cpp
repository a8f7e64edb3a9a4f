#include "runtime/cache/control/cache_manager.hpp"

#include "base/check.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace terrace {

CacheManager::CacheManager(const ManagerConfig& config)
    : state_{config},
      write_backs_{state_.groups.pools(), config.write_back_blocks_ahead},
      look_ups_{state_.config.shared, state_.groups.at({}).actions().shared, state_.shared} {}

CacheManager::~CacheManager() = default;

// ---- what happened elsewhere ---------------------------------------------------------------------------------------------

void CacheManager::on_transfer(TransferEvent event) {
  const auto pool = std::ranges::find_if(state_.groups.pools(), [&](const auto& each) { return each->on_transfer(event); });
  TERRACE_CHECK(pool != state_.groups.pools().end());
  requests_.handle_events(**pool);
}

void CacheManager::on_store(const StoreEvent& event, PoolId pool) {
  state_.groups.at(pool).on_store(event);
  requests_.handle_events(state_.groups.at(pool));
}

void CacheManager::on_shared_probed(SharedActions::Probe::Asker asker, std::uint32_t token, ErrorCode error,
                                    std::uint32_t leading, PoolId pool) {
  if (asker == SharedActions::Probe::Asker::writer) return state_.groups.at(pool).on_shared_probed(token, error, leading);
  look_ups_.on_probed(token, error, leading, state_.now);
  on_answers();
}

void CacheManager::on_answers() {
  using Kind = SharedLookUps::Asker::Kind;
  while (look_ups_.has_answers()) {
    look_ups_.take_answers(answers_);
    for (SharedLookUps::Answer& answer : answers_) {
      switch (answer.asker.kind) {
        case Kind::request: requests_.on_answer(answer); break;
        case Kind::prefetch: prefetches_.on_answer(answer); break;
        case Kind::find: offload_.on_answer(answer.asker.number, answer.end); break;
      }
    }
  }
}

Result<PrefetchId> CacheManager::prefetch(const PrefetchOrder& order) {
  const Result<PrefetchId> begun = prefetches_.begin(order);
  requests_.settle();
  return begun;
}

Result<void> CacheManager::cancel_prefetch(PrefetchId id) {
  const Result<void> cancelled = prefetches_.cancel(id);
  requests_.settle();
  return cancelled;
}

void CacheManager::cancel_prefetches() {
  prefetches_.cancel_all();
  requests_.settle();
}

void CacheManager::on_shared_read(std::uint32_t token, ErrorCode error, PoolId pool) {
  state_.groups.at(pool).on_shared_read(token, error);
  requests_.handle_events(state_.groups.at(pool));
}

void CacheManager::set_shared_usable(bool usable) {
  usable = usable && !state_.shared_off;
  if (usable == state_.shared_usable) return;
  state_.shared_usable = usable;
  for (TieredPool* const pool : state_.groups.pools()) pool->set_shared_usable(usable);
}

void CacheManager::resume_shared() {
  state_.shared_off = false;
  look_ups_.forget();
}

void CacheManager::on_time(TimePoint now) {
  note_time(now);
  look_ups_.on_time(state_.now);
  on_answers();
  state_.write_budget.on_time(state_.now);
  for (const auto& pool : state_.groups.pools()) {
    pool->on_time(state_.now);
    requests_.handle_events(*pool);
  }
  write_backs_.on_time(state_.now);
  requests_.on_time();
  administration_.on_time();
}

void CacheManager::remember_freed() {
  for (const auto& pool : state_.groups.pools()) pool->remember_freed();
}

void CacheManager::take_freed(std::vector<SlotId>& device, std::vector<SlotId>& arena, PoolId pool) {
  state_.groups.at(pool).take_freed(device, arena);
}

void CacheManager::overwritten_by(std::span<const SlotId> device, Fence fence, PoolId pool) {
  state_.groups.at(pool).overwritten_by(device, fence);
}

// ---- state ---------------------------------------------------------------------------------------------------------------

TimePoint CacheManager::next_deadline() const {
  TimePoint next = std::min({requests_.next_deadline(), write_backs_.next_deadline(), administration_.next_deadline(),
                             look_ups_.next_deadline(), state_.link.next_deadline()});
  for (const auto& pool : state_.groups.pools()) next = std::min(next, pool->next_deadline());
  return next;
}

bool CacheManager::wants_reclaim() const {
  return std::ranges::any_of(state_.groups.pools(), [](const auto& pool) { return pool->wants_reclaim(); });
}

bool CacheManager::has_pending_work() const {
  return write_backs_.wants_pump() || look_ups_.probes() > 0 ||
         !std::ranges::all_of(state_.groups.pools(), [](const auto& pool) { return pool->idle(); });
}

std::string CacheManager::describe_pending() const {
  std::string text =
      fmt::format("{} requests, {} quarantined, {} look-ups in the shared store, {} prefetches", requests_.live_requests(),
                  requests_.quarantined_requests(), look_ups_.asking(), prefetches_.running());
  for (const auto& pool : state_.groups.pools()) text += "; " + pool->describe_pending();
  return text;
}

std::string CacheManager::describe_tree(std::size_t lines_max) const {
  std::string text;
  for (const auto& pool : state_.groups.pools()) text += pool->describe_tree(lines_max);
  return text;
}

std::uint64_t CacheManager::readers() const {
  std::uint64_t readers = 0;
  for (const auto& pool : state_.groups.pools()) readers += pool->readers();
  return readers;
}

std::uint64_t CacheManager::shared_waiting_blocks() const {
  std::uint64_t blocks = 0;
  for (const auto& pool : state_.groups.pools()) {
    if (pool->shared_writer() != nullptr) blocks += pool->shared_writer()->waiting_blocks();
  }
  return blocks;
}

std::size_t CacheManager::bytes_held() const {
  std::size_t bytes = 0;
  for (const auto& pool : state_.groups.pools()) bytes += pool->bytes_held();
  return bytes;
}

void CacheManager::check_invariants() const {
  write_backs_.check_invariants();
  const SharedTotals& shared = state_.shared;
  TERRACE_CHECK(shared.wished == shared.present + shared.written + shared.drop_bound + shared.drop_gone + shared.drop_failed +
                                     shared.drop_full + shared.drop_budget + shared.drop_off + shared_waiting_blocks());
  const auto pools = state_.groups.pools();
  std::vector<std::uint64_t> held(pools.size());
  requests_.check_invariants(held);
  const bool none = requests_.live_requests() + requests_.quarantined_requests() == 0;
  for (std::size_t pool = 0; pool < pools.size(); ++pool) {
    if (none) TERRACE_CHECK(pools[pool]->device_slots().promised() == 0);
    pools[pool]->check_invariants(held[pool], none && !administration_.has_pins() && !offload_.has_pins());
  }
}

}  // namespace terrace
