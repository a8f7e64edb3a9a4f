#include "tests/simulation/world.hpp"

#include "base/check.hpp"
#include "tests/simulation/world_client.hpp"

#include <chrono>

namespace terrace::test {

/// An operator starts write-back jobs, pauses, resumes or cancels them, and reads their progress.
void World::order_write_back() {
  if (winding_down_) return;
  if (!jobs_.empty() && random_.chance(0.4)) {
    const WriteBackId id = jobs_[random_.below(jobs_.size())];
    switch (random_.below(3)) {
      case 0: (void)cache_->pause_write_back(id); return;
      case 1: (void)cache_->resume_write_back(id); return;
      default: (void)cache_->cancel_write_back(id); return;
    }
  }
  std::vector<std::uint32_t> names;
  std::vector<BlockKey> keys;
  WriteBackOrder order;
  if (shared_store_ && random_.chance(0.5)) order.target = WriteBackOrder::Target::shared;
  order.scope = static_cast<WriteBackOrder::Scope>(random_.below(5));
  order.request = RequestId{random_.between(1, next_id_)};
  if (order.scope == WriteBackOrder::Scope::prefix) keys = random_keys(names);
  order.keys = keys;
  order.tenant = TenantId{random_.below(3)};
  order.unused_for = std::chrono::milliseconds{random_.below(3000)};
  if (random_.chance(0.2)) order.deadline = clock_.now() + std::chrono::milliseconds{random_.below(100)};
  order.durable = random_.chance(0.7);
  if (random_.chance(0.3)) order.budget = Bytes{random_.below(10 * 4096)};
  const Result<WriteBackId> started = cache_->start_write_back(order);
  if (!started) return;
  jobs_.push_back(*started);
  ++seen_->jobs;
}

/// An engine announces a request, or withdraws what it has announced. Most requests that it announces never come.
void World::prefetch() {
  if (winding_down_) return;
  if (!prefetches_.empty() && random_.chance(0.2)) {
    const PrefetchId id = prefetches_[random_.below(prefetches_.size())];
    TERRACE_CHECK(cache_->prefetching(id) == cache_->cancel_prefetch(id).has_value() && !cache_->prefetching(id));
    return;
  }
  std::vector<std::uint32_t> names;
  const std::vector<BlockKey> keys = random_keys(names);
  PrefetchOrder order;
  order.keys = keys;
  order.farthest_source = random_.chance(0.3) ? Source::storage : Source::shared;
  order.tenant = tenant_of(names);
  if (random_.chance(0.2)) order.deadline = clock_.now() + std::chrono::milliseconds{random_.below(100)};
  if (const Result<PrefetchId> begun = cache_->prefetch(order)) prefetches_.push_back(*begun);
}

/// The counts of each job agree with its results block by block.
void World::check_jobs() {
  for (const WriteBackId id : jobs_) {
    const auto progress = cache_->write_back(id);
    if (!progress) continue;  // it ended long ago and is forgotten
    const auto results = cache_->take_write_back_results(id);
    TERRACE_CHECK(results.has_value());
    Told& told = told_[id];
    for (const WriteBackResult& result : *results) {
      ++told.blocks[static_cast<std::size_t>(result.outcome)];
      TERRACE_CHECK(told.keys.insert(result.key).second);
      ++seen_->job_blocks[static_cast<std::size_t>(result.outcome)];
      const bool failed = result.outcome != WriteBackOutcome::stored && result.outcome != WriteBackOutcome::already_there;
      TERRACE_CHECK(result.error.failed() == failed);
    }
    TERRACE_CHECK(told.blocks == progress->blocks);
    if (arenas_.size() == 1) {
      TERRACE_CHECK(progress->written == arenas_.front()->block_bytes() * progress->of(WriteBackOutcome::stored));
    }
    TERRACE_CHECK(!progress->ended() || progress->under_way == 0);
  }
}

void World::end_jobs() {
  for (const WriteBackId id : jobs_) (void)cache_->resume_write_back(id);
}

}  // namespace terrace::test
