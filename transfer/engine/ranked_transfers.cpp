#include "transfer/engine/ranked_transfers.hpp"

#include "base/check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <iterator>
#include <limits>
#include <stdexcept>
#include <utility>

namespace terrace {
namespace {

/// Of a rank that has all of them, or nothing to do with the plan.
constexpr std::uint32_t all_layers = std::numeric_limits<std::uint32_t>::max();

/// What a block has come to on two ranks together.
BlockOutcome both(BlockOutcome a, BlockOutcome b) {
  if (a == b) return a;
  const bool any_unconfirmed = a == BlockOutcome::unconfirmed || b == BlockOutcome::unconfirmed;
  return any_unconfirmed ? BlockOutcome::unconfirmed : BlockOutcome::failed;
}

TransferEvent event_of(const TransferPlan& plan, TransferEvent::Kind kind) {
  TransferEvent event;
  event.job = plan.job;
  event.kind = kind;
  event.direction = plan.direction;
  return event;
}

}  // namespace

std::string_view to_string(RankPayload payload) {
  return payload == RankPayload::sharded ? "sharded" : "replicated";
}

std::string_view to_string(RankHealth::State state) {
  switch (state) {
    case RankHealth::State::well: return "well";
    case RankHealth::State::slow: return "slow";
    case RankHealth::State::lost: return "lost";
  }
  return "?";
}

RankedTransfers::RankedTransfers(std::vector<Rank> ranks, const Clock& clock, Waker& waker, RankedTransfersOptions options)
    : clock_{clock}, waker_{waker}, options_{options} {
  if (ranks.empty() || ranks.size() > ranks_max) {
    throw std::invalid_argument{fmt::format("{} ranks: there must be 1 to {}", ranks.size(), ranks_max)};
  }
  for (Rank& rank : ranks) ranks_.push_back({std::move(rank.name), rank.port});
}

RankedTransfers::Mask RankedTransfers::recipients(const TransferPlan& plan) {
  const Mask all = std::numeric_limits<Mask>::max() >> (ranks_max - ranks_.size());
  const bool one_does = options_.payload == RankPayload::replicated && plan.direction == Direction::swap_out;
  if (!one_does) return all;
  const auto least = std::ranges::min_element(ranks_, {}, &Member::owed);
  return bit(static_cast<std::uint32_t>(least - ranks_.begin()));
}

void RankedTransfers::submit(TransferPlan plan) {
  if (lost_ != 0) {
    TransferEvent refused = event_of(plan, TransferEvent::Kind::finished);
    refused.outcomes.assign(block_count(plan.runs), BlockOutcome::cancelled);
    refused.error = Errc::stopped;
    refused.runs = std::move(plan.runs);
    refused_.push_back(std::move(refused));
    waker_.wake();
    return;
  }
  const Mask to = recipients(plan);
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    if ((to & bit(rank)) == 0) continue;
    std::vector<SlotRun> runs = spare_runs_.take();
    runs.assign(plan.runs.begin(), plan.runs.end());
    TransferPlan mine{.job = plan.job, .pool = plan.pool, .direction = plan.direction, .urgency = plan.urgency,
                      .deadline = plan.deadline, .after = plan.after, .by_layer = plan.by_layer, .runs = std::move(runs)};
    ranks_[rank].port->submit(std::move(mine));
    ++ranks_[rank].owed;
  }
  Job job;
  job.working = to;
  job.submitted = clock_.now();
  if (plan.by_layer) {
    job.layers = spare_layers_.take();
    for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) job.layers.push_back((to & bit(rank)) == 0 ? all_layers : 0);
  }
  const JobId id = plan.job;
  const TimePoint deadline = plan.deadline;
  job.plan = std::move(plan);
  const Handle handle = jobs_.add(std::move(job));
  if (deadline != never) deadlines_.set(handle, deadline + options_.report_grace);
  bool is_new = false;
  if (spare_nodes_.empty()) {
    is_new = open_.emplace(id, handle).second;
  } else {
    auto node = std::move(spare_nodes_.back());
    spare_nodes_.pop_back();
    node.key() = id;
    node.mapped() = handle;
    is_new = open_.insert(std::move(node)).inserted;
  }
  TERRACE_CHECK(is_new);
}

void RankedTransfers::raise(JobId job, Urgency urgency) {
  const auto found = open_.find(job);
  if (found == open_.end()) return;
  const Mask working = jobs_.at(found->second).working;
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    if ((working & bit(rank)) != 0) ranks_[rank].port->raise(job, urgency);
  }
}

void RankedTransfers::cancel(JobId job) {
  const auto found = open_.find(job);
  if (found == open_.end()) return;
  const Mask working = jobs_.at(found->second).working;
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    if ((working & bit(rank)) != 0) ranks_[rank].port->cancel(job);
  }
}

void RankedTransfers::limit(Urgency urgency, Bytes per_second) {
  for (const Member& rank : ranks_) rank.port->limit(urgency, per_second);
}

std::size_t RankedTransfers::poll(std::vector<TransferEvent>& out) {
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    collected_.clear();
    ranks_[rank].port->poll(collected_);
    for (TransferEvent& event : collected_) on_event(rank, std::move(event));
  }
  collected_.clear();
  // After what they had to say: a rank that reports late, but before it is asked, is in time.
  if (!deadlines_.empty()) expire(clock_.now());
  const std::size_t reported = events_.size() + refused_.size();
  std::ranges::move(events_, std::back_inserter(out));
  events_.clear();
  std::ranges::move(refused_, std::back_inserter(out));
  refused_.clear();
  return reported;
}

TimePoint RankedTransfers::next_deadline() const {
  TimePoint next = deadlines_.empty() ? never : deadlines_.top().priority;
  for (const Member& rank : ranks_) next = std::min(next, rank.port->next_deadline());
  return next;
}

Fence RankedTransfers::reached() const {
  Fence least = ranks_.front().port->reached();
  for (const Member& rank : ranks_) least = std::min(least, rank.port->reached());
  return least;
}

Fence RankedTransfers::after_all_work() const {
  Fence last;
  for (const Member& rank : ranks_) last = std::max(last, rank.port->after_all_work());
  return last;
}

void RankedTransfers::on_event(std::uint32_t rank, TransferEvent event) {
  if (!event.runs.empty()) spare_runs_.give(std::move(event.runs));
  if (ranks_[rank].lost) return;  // settled when it was lost
  const auto found = open_.find(event.job);
  TERRACE_CHECK(found != open_.end());
  const Handle handle = found->second;
  Job& job = jobs_.at(handle);
  if (event.kind == TransferEvent::Kind::confirmed) {
    TERRACE_CHECK((job.confirming & bit(rank)) != 0);
    job.confirming &= ~bit(rank);
  } else if (event.kind == TransferEvent::Kind::layers) {
    on_layers(job, rank, event.layers);
  } else {
    TERRACE_CHECK((job.working & bit(rank)) != 0);
    --ranks_[rank].owed;
    if (!job.first_finish) job.first_finish = clock_.now();
    on_finished(job, event, bit(rank));
    if (!job.error && job.working != 0) on_layers(job, rank, all_layers);
  }
  settle(handle);
}

/// What every rank has of the job's layers is told, as long as nothing of it has failed anywhere.
void RankedTransfers::on_layers(Job& job, std::uint32_t rank, std::uint32_t layers) {
  if (job.layers.empty()) return;
  job.layers[rank] = layers;
  const std::uint32_t arrived = std::ranges::min(job.layers);
  if (job.reported || job.error || arrived <= job.told_layers) return;
  job.told_layers = arrived;
  report(job, TransferEvent::Kind::layers);
}

void RankedTransfers::on_finished(Job& job, TransferEvent& event, Mask rank) {
  job.working &= ~rank;
  if (std::ranges::count(event.outcomes, BlockOutcome::unconfirmed) > 0) job.confirming |= rank;
  if (job.outcomes.empty()) {
    job.outcomes = std::move(event.outcomes);
  } else {
    TERRACE_CHECK(job.outcomes.size() == event.outcomes.size());
    std::ranges::transform(job.outcomes, event.outcomes, job.outcomes.begin(), both);
  }
  job.moved = Bytes{count(job.moved) + count(event.moved)};
  job.took = std::max(job.took, event.took);
  job.copying = std::max(job.copying, event.copying);
  if (!job.error) job.error = event.error;
}

/// Reports what there is to report of the job.
void RankedTransfers::settle(Handle handle) {
  Job& job = jobs_.at(handle);
  if (job.working == 0 && !job.reported) {
    const bool owes_confirmed = std::ranges::count(job.outcomes, BlockOutcome::unconfirmed) > 0;
    report(job, TransferEvent::Kind::finished);
    deadlines_.erase(handle);
    if (!owes_confirmed) return end(handle);
  }
  if (job.reported && job.working == 0 && job.confirming == 0) {
    report(job, TransferEvent::Kind::confirmed);
    end(handle);
  }
}

/// Ranks that have not reported by now are not waited for: for all that is known they are copying.
void RankedTransfers::expire(TimePoint now) {
  while (!deadlines_.empty() && deadlines_.top().priority <= now) {
    const Handle handle = deadlines_.top().handle;
    deadlines_.erase(handle);
    Job& job = jobs_.at(handle);
    job.outcomes.assign(block_count(job.plan.runs), BlockOutcome::unconfirmed);
    if (!job.error) job.error = Errc::deadline_exceeded;
    report(job, TransferEvent::Kind::finished);
  }
}

void RankedTransfers::report(Job& job, TransferEvent::Kind kind) {
  TransferEvent event = event_of(job.plan, kind);
  if (kind == TransferEvent::Kind::finished) {
    const bool unconfirmed = std::ranges::count(job.outcomes, BlockOutcome::unconfirmed) > 0;
    event.outcomes = std::move(job.outcomes);
    event.moved = job.moved;
    event.took = job.took;
    event.copying = job.copying;
    event.error = job.error;
    if (!unconfirmed) event.runs = std::move(job.plan.runs);
    job.reported = true;
  } else if (kind == TransferEvent::Kind::layers) {
    event.layers = job.told_layers;
  } else {
    event.runs = std::move(job.plan.runs);
  }
  events_.push_back(std::move(event));
}

void RankedTransfers::end(Handle handle) {
  Job job = jobs_.take(handle);
  if (!job.layers.empty()) spare_layers_.give(std::move(job.layers));
  spare_nodes_.push_back(open_.extract(job.plan.job));
}

void RankedTransfers::lose(std::uint32_t rank) {
  Member& member = ranks_.at(rank);
  if (member.lost) return;
  member.lost = true;
  member.owed = 0;
  lost_ |= bit(rank);
  std::vector<Handle> handles;
  for (const auto& [id, handle] : open_) handles.push_back(handle);
  // In the order in which they were made, not in that of a hash table: runs repeat.
  std::ranges::sort(handles, {}, [&](Handle handle) { return jobs_.at(handle).plan.job; });
  for (const Handle handle : handles) {
    Job& job = jobs_.at(handle);
    job.confirming &= ~bit(rank);
    if ((job.working & bit(rank)) != 0) {
      TransferEvent failed = event_of(job.plan, TransferEvent::Kind::finished);
      failed.outcomes.assign(block_count(job.plan.runs), BlockOutcome::failed);
      failed.error = Errc::stopped;
      on_finished(job, failed, bit(rank));
    }
    settle(handle);
  }
  waker_.wake();
}

RankHealth RankedTransfers::health(std::uint32_t rank) const {
  const Member& member = ranks_.at(rank);
  RankHealth health{.name = member.name};
  const TimePoint now = clock_.now();
  for (const auto& [id, handle] : open_) {
    const Job& job = *jobs_.find(handle);
    if (((job.working | job.confirming) & bit(rank)) == 0) continue;
    ++health.plans;
    health.oldest = std::max(health.oldest, now - job.submitted);
    if (job.first_finish) health.behind = std::max(health.behind, now - *job.first_finish);
  }
  if (member.lost) {
    health.state = RankHealth::State::lost;
  } else if (health.plans > 0 && health.behind >= options_.slow_after) {
    health.state = RankHealth::State::slow;
  }
  return health;
}

void RankedTransfers::check_invariants() const {
  TERRACE_CHECK(open_.size() == jobs_.size());
  std::vector<std::uint32_t> owed(ranks_.size(), 0);
  for (const auto& [id, handle] : open_) {
    const Job* const job = jobs_.find(handle);
    TERRACE_CHECK(job != nullptr && job->plan.job == id);
    const Mask all = job->working | job->confirming;
    TERRACE_CHECK(all != 0 && (job->working & job->confirming) == 0);
    TERRACE_CHECK((all & lost_) == 0);
    TERRACE_CHECK(deadlines_.contains(handle) == (!job->reported && job->plan.deadline != never));
    for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) owed[rank] += (job->working & bit(rank)) != 0 ? 1 : 0;
  }
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) TERRACE_CHECK(owed[rank] == ranks_[rank].owed);
}

}  // namespace terrace
