// The events and counts of a TierBatches, and its own consistency.

#include "base/check.hpp"
#include "runtime/store/tier_batches.hpp"

#include <algorithm>
#include <iterator>
#include <new>
#include <utility>

namespace terrace {

void TierBatches::leave(const TierEvent& event) {
  if (events_.size() >= limits_.events_max) {
    ++counted_.events_dropped;
    events_.pop_front();
  }
  events_.push_back(event);
}

std::size_t TierBatches::poll_events(std::vector<TierEvent>& out) {
  const std::size_t arrived = events_.size();
  out.insert(out.end(), events_.begin(), events_.end());
  events_.clear();
  return arrived;
}

void TierBatches::watch(std::function<void(std::span<const BlockKey>)> asked) {
  asked_ = std::move(asked);
  misses_.begin();
  store_.for_each([this](const StoredBlock& block) { misses_.came(block.key, Tier::storage); });
}

void TierBatches::note_needed(BatchKind kind, std::span<const BlockKey> keys) try {
  if (kind == BatchKind::put) {
    needed_.clear();
    std::ranges::copy_if(keys, std::back_inserter(needed_), [this](const BlockKey& key) { return !store_.contains(key); });
    for (const BlockKey& key : needed_) misses_.missed(key, 1);
    keys = needed_;
  }
  asked_(keys);
} catch (const std::bad_alloc&) {
  // It is missing in the statistics; the batch has begun.
}

TierStatistics TierBatches::statistics() const {
  TierStatistics now = counted_;
  now.not_flushed = stored_ - covered_;
  now.batches = static_cast<std::uint32_t>(ids_.size());
  now.under_way = gets_under_way_ + puts_under_way_;
  now.waiting = blocks_ - now.under_way;
  now.regions = regions_.regions();
  if (layered_ != nullptr) {
    const LayeredStat& layered = layered_->layered_stat();
    now.shared_hits = layered.reads;
    now.shared_misses = layered.misses;
    now.shared_stored = layered.writes;
    now.shared_present = layered.present;
    now.shared_not_stored = layered.unwritten;
    now.shared_gets = layered.gets;
    now.shared_gets_declined = layered.gets_declined;
    now.shared_puts = layered.puts;
    now.shared_puts_cancelled = layered.cancelled;
    now.shared_puts_declined = layered.puts_declined;
  }
  return now;
}

void TierBatches::check_invariants() const {
  std::uint32_t blocks = 0;
  std::uint32_t under_way = 0;
  std::uint32_t overtaken_puts = 0;
  for (const auto& [id, number] : ids_) {
    const Batch& batch = batches_[number];
    TERRACE_CHECK(batch.id.value() == id);
    if (batch.kind == BatchKind::flush || batch.kind == BatchKind::probe) continue;
    std::uint32_t unended = 0;
    std::uint32_t of_batch = 0;
    for (std::size_t i = 0; i < batch.blocks.size(); ++i) {
      const State state = batch.blocks[i].state;
      if (state != State::ended) ++blocks;
      if (state == State::waiting || state == State::under_way || state == State::overtaken) ++unended;
      if (state == State::under_way || state == State::overtaken || state == State::abandoned) ++of_batch;
      if (state == State::overtaken && batch.kind == BatchKind::put) ++overtaken_puts;
      if (state == State::waiting) TERRACE_CHECK(batch.queued && i >= batch.next);
    }
    TERRACE_CHECK(batch.has_ended || unended == batch.unended);
    TERRACE_CHECK(of_batch == batch.under_way);
    under_way += of_batch;
  }
  TERRACE_CHECK(blocks == blocks_);
  TERRACE_CHECK(overtaken_puts == overtaken_puts_);
  TERRACE_CHECK(under_way == gets_under_way_ + puts_under_way_);
  TERRACE_CHECK(free_batches_.size() + ids_.size() == batches_.size());
  std::uint32_t puts = 0;
  for (const auto& [key, storing] : storing_) puts += storing.puts;
  TERRACE_CHECK(puts == puts_under_way_);
  TERRACE_CHECK(to_retry_.empty());
  regions_.check_invariants();
}

}  // namespace terrace
