#include "runtime/cache/control/cache_manager.hpp"

#include "base/check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace terrace {

CacheManager::CacheManager(const ManagerConfig& config)
    : state_{config}, write_backs_{state_.groups.pools(), config.write_back_blocks_ahead} {}

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
  if (asker == SharedActions::Probe::Asker::writer)
    return state_.groups.at(pool).shared_writer()->on_probed(token, error, leading);
  questions_.on_probed(token, error, leading);
  on_answers();
}

void CacheManager::on_answers() {
  while (questions_.has_answers()) {
    questions_.take_answers(answers_);
    for (SharedQuestions::Answer& answer : answers_) {
      if (answer.asker.kind == SharedQuestions::Asker::Kind::request) requests_.on_answer(answer);
      else prefetches_.on_answer(answer);
    }
  }
}

void CacheManager::on_shared_read(std::uint32_t token, ErrorCode error, PoolId pool) {
  state_.groups.at(pool).on_shared_read(token, error);
  requests_.handle_events(state_.groups.at(pool));
}

void CacheManager::on_time(TimePoint now) {
  note_time(now);
  questions_.on_time();
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

// ---- the loop ------------------------------------------------------------------------------------------------------------

void CacheManager::settle() {
  if (continue_any()) start_transfers();
}

void CacheManager::settle_and_reclaim() {
  bool any = continue_any();
  bool evicted = false;
  for (const auto& pool : state_.groups.pools()) evicted |= pool->reclaim();
  if (evicted) any |= continue_any();
  if (any) start_transfers();
}

bool CacheManager::rests() {
  if (!has_nothing_to_continue() || has_pending_work() || wants_reclaim() || requests_.quarantined_requests() > 0) return false;
  for (const auto& pool : state_.groups.pools()) pool->catch_up();
  return true;
}

bool CacheManager::has_nothing_to_continue() const {
  return requests_.rests() && write_backs_.idle() && prefetches_.rests() &&
         std::ranges::all_of(state_.groups.pools(), [](const auto& pool) { return pool->rests(); });
}

/// Returns false if there was nothing to continue, which is the usual case.
bool CacheManager::continue_any() {
  if (!has_nothing_to_continue()) {
    continue_all();
    return true;
  }
  // But the call may have taken slots, so that the next poll has to evict for the watermarks.
  for (const auto& pool : state_.groups.pools()) pool->on_slots_taken();
  return false;
}

/// Continues everything that can continue now. First come the requests that are planned again, so that they are in line before
/// the pools give out slots. Then each pool gives out slots, and the requests that got them start their loads. Then the requests
/// continue whose prefetch has ended. Write-back jobs come last, because no request waits for them. Each step can make work for
/// an earlier one, so the steps are repeated until none of them changes anything. That happens soon: copies, reads and writes are
/// only ordered here, and none of them ends during the loop. So the steps use up the free slots, victims and events that there
/// are.
void CacheManager::continue_all() {
  for (bool again = true; again;) {
    again = !prefetches_.rests();
    again |= requests_.replan_failed();
    for (const auto& pool : state_.groups.pools()) {
      again |= pool->pump();
      requests_.handle_events(*pool);
    }
    again |= prefetches_.pump();
    requests_.resume_waiting();
    again |= write_backs_.pump();
  }
}

void CacheManager::start_transfers() {
  for (const auto& pool : state_.groups.pools()) pool->start_transfers(last_transfer_);
}

Result<Acquired> CacheManager::acquire(const AcquireRequest& request) {
  const Result<Requests::Index> begun = requests_.begin(request);
  if (!begun) return begun.error();
  settle();
  return requests_.settled(*begun);
}

// ---- state ---------------------------------------------------------------------------------------------------------------

TimePoint CacheManager::next_deadline() const {
  TimePoint next = std::min({requests_.next_deadline(), write_backs_.next_deadline(), administration_.next_deadline(),
                             questions_.next_deadline(), state_.link.next_deadline()});
  for (const auto& pool : state_.groups.pools()) next = std::min(next, pool->next_deadline());
  return next;
}

bool CacheManager::has_pending_work() const {
  return write_backs_.wants_pump() || questions_.probes() > 0 ||
         !std::ranges::all_of(state_.groups.pools(), [](const auto& pool) { return pool->idle(); });
}

std::uint64_t CacheManager::blocks_for(std::uint64_t tokens, GroupId group) const {
  if (group.value() >= state_.groups.size()) throw std::invalid_argument{fmt::format("there is no group {}", group.value())};
  const std::uint32_t block = state_.groups.rules()[group.value()].config().block_tokens;
  return tokens / block + (tokens % block == 0 ? 0 : 1);
}

std::string CacheManager::describe_pending() const {
  std::string text =
      fmt::format("{} requests, {} quarantined, {} look-ups in the shared store, {} prefetches", requests_.live_requests(),
                  requests_.quarantined_requests(), questions_.asking(), prefetches_.running());
  for (const auto& pool : state_.groups.pools()) text += "; " + pool->describe_pending();
  return text;
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
