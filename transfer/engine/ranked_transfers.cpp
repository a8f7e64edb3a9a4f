#include "transfer/engine/ranked_transfers.hpp"

#include "base/check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <span>
#include <stdexcept>
#include <utility>

namespace terrace {
namespace {

/// Combines the outcomes of a block on two ranks.
BlockOutcome both(BlockOutcome a, BlockOutcome b) {
  if (a == b) return a;
  const bool any_unconfirmed = a == BlockOutcome::unconfirmed || b == BlockOutcome::unconfirmed;
  return any_unconfirmed ? BlockOutcome::unconfirmed : BlockOutcome::failed;
}

bool any_unconfirmed(std::span<const BlockOutcome> outcomes) {
  return std::ranges::find(outcomes, BlockOutcome::unconfirmed) != outcomes.end();
}

}  // namespace

std::string_view to_string(RankPayload payload) { return payload == RankPayload::sharded ? "sharded" : "replicated"; }

std::string_view to_string(RankHealth::State state) {
  switch (state) {
    case RankHealth::State::well: return "well";
    case RankHealth::State::slow: return "slow";
    case RankHealth::State::lost: return "lost";
    case RankHealth::State::failing: return "failing";
  }
  return "?";
}

RankedTransfers::RankedTransfers(std::vector<Rank> ranks, const Clock& clock, Waker& waker, RankedTransfersOptions options)
    : clock_{clock}, waker_{waker}, options_{options} {
  if (ranks.empty() || ranks.size() > ranks_max) {
    throw std::invalid_argument{fmt::format("{} ranks: there must be 1 to {}", ranks.size(), ranks_max)};
  }
  for (Rank& rank : ranks) ranks_.push_back(Member{std::move(rank)});
}

RankedTransfers::Mask RankedTransfers::recipients(const Transfer& transfer) {
  const Mask all = std::numeric_limits<Mask>::max() >> (ranks_max - ranks_.size());
  const bool one_does = options_.payload == RankPayload::replicated && transfer.direction == Direction::swap_out;
  if (!one_does) return all;
  // All ranks have the same bytes, so the rank with the fewest open transfers copies them.
  const auto least = std::ranges::min_element(ranks_, {}, &Member::owed);
  return bit(static_cast<std::uint32_t>(least - ranks_.begin()));
}

void RankedTransfers::submit(Transfer transfer) {
  if (lost_ != 0) {
    events_.push_back(not_taken(std::move(transfer), Errc::stopped));
    waker_.wake();
    return;
  }
  const Mask to = recipients(transfer);
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    if ((to & bit(rank)) == 0) continue;
    Transfer mine{.runs = spare_runs_.take()};
    mine = transfer;  // keeps the memory of the runs
    ranks_[rank].port->submit(std::move(mine));
    ++ranks_[rank].owed;
  }
  Entry entry;
  entry.working = to;
  entry.submitted = clock_.now();
  entry.result = event_of(transfer, TransferEvent::Kind::finished);
  if (transfer.by_layer) {
    entry.layers = spare_layers_.take();
    for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) entry.layers.push_back((to & bit(rank)) == 0 ? all_layers : 0);
  }
  const TransferId id = transfer.id;
  const TimePoint deadline = transfer.deadline;
  entry.transfer = std::move(transfer);
  const Handle handle = entries_.add(std::move(entry));
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

template <class Call>
void RankedTransfers::for_each_working(const Entry& entry, Call call) const {
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    if ((entry.working & bit(rank)) != 0) call(*ranks_[rank].port);
  }
}

void RankedTransfers::raise(TransferId id, Urgency urgency) {
  if (const auto found = open_.find(id); found != open_.end()) {
    for_each_working(entries_.at(found->second), [&](TransferPort& port) { port.raise(id, urgency); });
  }
}

void RankedTransfers::postpone(TransferId id, TimePoint deadline) {
  const auto found = open_.find(id);
  if (found == open_.end()) return;
  Entry& entry = entries_.at(found->second);
  if (entry.reported || deadline <= entry.transfer.deadline) return;
  entry.transfer.deadline = deadline;
  deadlines_.erase(found->second);
  if (deadline != never) deadlines_.set(found->second, deadline + options_.report_grace);
  for_each_working(entry, [&](TransferPort& port) { port.postpone(id, deadline); });
}

void RankedTransfers::cancel(TransferId id) {
  if (const auto found = open_.find(id); found != open_.end()) {
    for_each_working(entries_.at(found->second), [&](TransferPort& port) { port.cancel(id); });
  }
}

void RankedTransfers::wake_transfers() {
  for (const Member& rank : ranks_) rank.port->wake_transfers();
}

void RankedTransfers::limit(Urgency urgency, BytesPerSecond per_second) {
  for (const Member& rank : ranks_) rank.port->limit(urgency, per_second);
}

std::size_t RankedTransfers::poll(std::vector<TransferEvent>& out) {
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    collected_.clear();
    ranks_[rank].port->poll(collected_);
    for (TransferEvent& event : collected_) on_event(rank, std::move(event));
  }
  collected_.clear();
  // Check deadlines after the reports, so that a report that arrived before this call is in time.
  if (!deadlines_.empty()) expire(clock_.now());
  const std::size_t reported = events_.size();
  std::ranges::move(events_, std::back_inserter(out));
  events_.clear();
  return reported;
}

Result<void> RankedTransfers::await(TransferId id, std::uint32_t layers, StreamRef stream, std::uint32_t rank) {
  if (rank >= ranks_.size()) return no_such_rank;
  const auto found = open_.find(id);
  if (found == open_.end()) return Errc::unknown_request;
  const Entry& entry = entries_.at(found->second);
  if (entry.result.error) return entry.result.error;
  // The rank has copied its part, or takes no part.
  if ((entry.working & bit(rank)) == 0) return {};
  return ranks_[rank].port->await(id, layers, stream, 0);
}

Result<Fence> RankedTransfers::signal(StreamRef stream, std::uint32_t rank) {
  if (rank >= ranks_.size()) return no_such_rank;
  return ranks_[rank].port->signal(stream, 0);
}

TimePoint RankedTransfers::next_deadline() const {
  TimePoint next = deadlines_.empty() ? never : deadlines_.top().priority;
  for (const Member& rank : ranks_) next = std::min(next, rank.port->next_deadline());
  return next;
}

TimePoint RankedTransfers::oldest_copy() const {
  TimePoint oldest = never;
  for (const Member& rank : ranks_) {
    if (!rank.lost) oldest = std::min(oldest, rank.port->oldest_copy());
  }
  return oldest;
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

bool RankedTransfers::given_out(Fence point) const {
  return std::ranges::all_of(ranks_, [point](const Member& rank) { return rank.port->given_out(point); });
}

void RankedTransfers::on_event(std::uint32_t rank, TransferEvent event) {
  if (!event.runs.empty()) spare_runs_.give(std::move(event.runs));
  if (ranks_[rank].lost) return;  // its transfers were settled when it was lost
  const auto found = open_.find(event.id);
  TERRACE_CHECK(found != open_.end());
  const Handle handle = found->second;
  Entry& entry = entries_.at(handle);
  if (event.kind == TransferEvent::Kind::confirmed) {
    TERRACE_CHECK((entry.confirming & bit(rank)) != 0);
    entry.confirming &= ~bit(rank);
  } else if (event.kind == TransferEvent::Kind::layers) {
    on_layers(entry, rank, event.layers);
  } else {
    TERRACE_CHECK((entry.working & bit(rank)) != 0);
    --ranks_[rank].owed;
    note_outcome(ranks_[rank], event);
    if (!entry.first_finish) entry.first_finish = clock_.now();
    on_finished(entry, event, bit(rank));
    if (!entry.result.error && entry.working != 0) on_layers(entry, rank, all_layers);
  }
  settle(handle);
}

/// Updates the count of failures in a row. One block that has arrived shows that the rank works. A cancelled transfer shows
/// nothing.
void RankedTransfers::note_outcome(Member& member, const TransferEvent& event) {
  const auto any = [&](BlockOutcome outcome) { return std::ranges::find(event.outcomes, outcome) != event.outcomes.end(); };
  if (any(BlockOutcome::done)) member.failures_in_row = 0;
  else if (any(BlockOutcome::failed) || any(BlockOutcome::unconfirmed)) ++member.failures_in_row;
}

/// Reports the layers that have arrived on every rank, unless a part of the transfer has failed on any rank.
void RankedTransfers::on_layers(Entry& entry, std::uint32_t rank, std::uint32_t layers) {
  if (entry.layers.empty()) return;
  entry.layers[rank] = layers;
  const std::uint32_t arrived = std::ranges::min(entry.layers);
  if (entry.reported || entry.result.error || arrived <= entry.reported_layers) return;
  entry.reported_layers = arrived;
  report(entry, TransferEvent::Kind::layers);
}

void RankedTransfers::on_finished(Entry& entry, TransferEvent& event, Mask rank) {
  entry.working &= ~rank;
  if (any_unconfirmed(event.outcomes)) entry.confirming |= rank;
  if (entry.result.outcomes.empty()) {
    entry.result.outcomes = std::move(event.outcomes);
  } else {
    TERRACE_CHECK(entry.result.outcomes.size() == event.outcomes.size());
    std::ranges::transform(entry.result.outcomes, event.outcomes, entry.result.outcomes.begin(), both);
  }
  entry.result.moved = Bytes{count(entry.result.moved) + count(event.moved)};
  entry.result.took = std::max(entry.result.took, event.took);
  entry.result.copying = std::max(entry.result.copying, event.copying);
  if (!entry.result.error) entry.result.error = event.error;
}

/// Reports `finished` when all ranks have finished, and `confirmed` when no rank may copy any more.
void RankedTransfers::settle(Handle handle) {
  Entry& entry = entries_.at(handle);
  if (entry.working == 0 && !entry.reported) {
    const bool owes_confirmed = any_unconfirmed(entry.result.outcomes);
    report(entry, TransferEvent::Kind::finished);
    deadlines_.erase(handle);
    if (!owes_confirmed) return end(handle);
  }
  if (entry.reported && entry.working == 0 && entry.confirming == 0) {
    report(entry, TransferEvent::Kind::confirmed);
    end(handle);
  }
}

/// Reports the transfers whose deadline and grace have passed. Ranks that have not reported may still be copying, so all blocks
/// are unconfirmed.
void RankedTransfers::expire(TimePoint now) {
  while (!deadlines_.empty() && deadlines_.top().priority <= now) {
    const Handle handle = deadlines_.top().handle;
    deadlines_.erase(handle);
    Entry& entry = entries_.at(handle);
    entry.result.outcomes.assign(block_count(entry.transfer.runs), BlockOutcome::unconfirmed);
    if (!entry.result.error) entry.result.error = Errc::deadline_exceeded;
    report(entry, TransferEvent::Kind::finished);
  }
}

void RankedTransfers::report(Entry& entry, TransferEvent::Kind kind) {
  TransferEvent event = event_of(entry.transfer, kind);
  if (kind == TransferEvent::Kind::finished) {
    event = std::move(entry.result);
    entry.reported = true;
  }
  if (kind == TransferEvent::Kind::layers) event.layers = entry.reported_layers;
  else if (!any_unconfirmed(event.outcomes)) event.runs = std::move(entry.transfer.runs);
  events_.push_back(std::move(event));
}

void RankedTransfers::end(Handle handle) {
  Entry entry = entries_.take(handle);
  if (!entry.layers.empty()) spare_layers_.give(std::move(entry.layers));
  spare_nodes_.push_back(open_.extract(entry.transfer.id));
}

void RankedTransfers::lose(std::uint32_t rank) {
  Member& member = ranks_.at(rank);
  if (member.lost) return;
  member.lost = true;
  member.owed = 0;
  lost_ |= bit(rank);
  std::vector<Handle> handles;
  handles.reserve(open_.size());
  for (const auto& [id, handle] : open_) handles.push_back(handle);
  // Use the order of the ids, not the order of the hash table, so that runs are reproducible.
  std::ranges::sort(handles, {}, [&](Handle handle) { return entries_.at(handle).transfer.id; });
  for (const Handle handle : handles) {
    Entry& entry = entries_.at(handle);
    entry.confirming &= ~bit(rank);
    if ((entry.working & bit(rank)) != 0) {
      TransferEvent failed = event_of(entry.transfer, TransferEvent::Kind::finished);
      failed.outcomes.assign(block_count(entry.transfer.runs), BlockOutcome::failed);
      failed.error = Errc::stopped;
      on_finished(entry, failed, bit(rank));
    }
    settle(handle);
  }
  waker_.wake();
}

RankHealth RankedTransfers::health(std::uint32_t rank) const {
  const Member& member = ranks_.at(rank);
  RankHealth health{.name = member.name, .failures_in_row = member.failures_in_row};
  const TimePoint now = clock_.now();
  for (const auto& [id, handle] : open_) {
    const Entry& entry = *entries_.find(handle);
    if (((entry.working | entry.confirming) & bit(rank)) == 0) continue;
    ++health.transfers;
    health.oldest = std::max(health.oldest, now - entry.submitted);
    if (entry.first_finish) health.behind = std::max(health.behind, now - *entry.first_finish);
  }
  if (member.lost) {
    health.state = RankHealth::State::lost;
  } else if (member.failures_in_row >= options_.failures_max) {
    health.state = RankHealth::State::failing;
  } else if (health.transfers > 0 && health.behind >= options_.slow_after) {
    health.state = RankHealth::State::slow;
  }
  return health;
}

void RankedTransfers::check_invariants() const {
  TERRACE_CHECK(open_.size() == entries_.size());
  std::vector<std::uint32_t> owed(ranks_.size(), 0);
  for (const auto& [id, handle] : open_) {
    const Entry* const entry = entries_.find(handle);
    TERRACE_CHECK(entry != nullptr && entry->transfer.id == id);
    const Mask all = entry->working | entry->confirming;
    TERRACE_CHECK(all != 0 && (entry->working & entry->confirming) == 0);
    TERRACE_CHECK((all & lost_) == 0);
    TERRACE_CHECK(deadlines_.contains(handle) == (!entry->reported && entry->transfer.deadline != never));
    for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) owed[rank] += (entry->working & bit(rank)) != 0 ? 1 : 0;
  }
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) TERRACE_CHECK(owed[rank] == ranks_[rank].owed);
}

}  // namespace terrace
