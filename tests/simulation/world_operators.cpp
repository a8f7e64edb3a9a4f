// Operators of a serving cache: they clear it, pin, resize and change its settings.

#include "base/check.hpp"
#include "tests/simulation/world.hpp"
#include "tests/simulation/world_client.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

namespace terrace::test {

/// Does what operators do with a serving cache.
void World::operate() {
  std::vector<std::uint32_t> names;
  switch (random_.below(12)) {
    case 0: {
      if (winding_down_ || !random_.chance(options_.clears)) return;
      // After the clear, live requests continue with the weights that they began with.
      ClearOptions how;
      how.wait = random_.chance(0.3);
      how.keep_storage = random_.chance(0.5);
      how.release_host = random_.chance(0.3);
      ++weights_;
      if (how.keep_storage) ++generation_;
      how.keep_shared = how.keep_storage && random_.chance(0.5);
      cache_->clear(how);
      // Requests that waited have failed; the next poll reports it.
      for (const auto& client : clients_) {
        if (client->state == Client::State::pending) *client->valid = false;
      }
      pins_.clear();
      ++seen_->clears;
      return;
    }
    case 1: (void)cache_->resume(); return;
    case 2:
      if (winding_down_) return;
      if (const auto pin = cache_->pin(random_keys(names), clock_.now() + std::chrono::milliseconds{random_.below(200)})) {
        pins_.push_back(*pin);
        ++seen_->pins;
      }
      return;
    case 3:
      if (pins_.empty()) return;
      (void)cache_->unpin(pins_.back());  // it may have expired
      pins_.pop_back();
      return;
    case 4:
      if (random_.chance(0.5)) {
        const Tier tier = random_.chance(0.5) ? Tier::device : Tier::host;
        const PoolId pool{static_cast<std::uint16_t>(random_.below(arenas_.size()))};
        (void)cache_->make_room(tier, Blocks{static_cast<std::uint32_t>(random_.below(12))}, pool);  // the tier may be smaller
        return;
      }
      if (cache_->drop(random_keys(names))) ++seen_->drops;
      return;
    case 6:
      // Sometimes ends a retention early; it may have expired.
      if (!retentions_.empty() && random_.chance(0.5)) {
        (void)cache_->end_retention(retentions_.back());
        retentions_.pop_back();
        return;
      }
      if (const auto kept = cache_->retain(random_keys(names), static_cast<Priority>(random_.below(highest_priority + 1U)),
                                           clock_.now() + std::chrono::milliseconds{random_.below(200)})) {
        retentions_.push_back(*kept);
        ++seen_->retained;
      }
      return;
    case 7: {
      const TenantId tenant{random_.below(tenants)};
      const PoolId pool{static_cast<std::uint16_t>(random_.below(arenas_.size()))};
      if (random_.chance(0.3)) {
        (void)cache_->remove_quota(tenant, pool);
        return;
      }
      const TenantQuota quota{Blocks{static_cast<std::uint32_t>(random_.below(12))},
                              Blocks{static_cast<std::uint32_t>(random_.below(12))}};
      if (cache_->set_quota(tenant, quota, pool)) ++seen_->quotas;
      return;
    }
    case 5: {
      if (winding_down_) return;
      const PoolId pool{static_cast<std::uint16_t>(random_.below(arenas_.size()))};
      if (options_.store != WorldOptions::Store::none && random_.chance(0.4)) return resize_storage(pool);
      const bool device = random_.chance(0.5);
      const std::uint64_t blocks = device ? random_.between(4, device_blocks_max) : random_.below(host_blocks_max);
      const Tier tier = device ? Tier::device : Tier::host;
      const Result<void> resized = cache_->resize(tier, Blocks{static_cast<std::uint32_t>(blocks)}, pool);
      note(resized ? blocks : 0);
      if (resized) ++seen_->resizes;
      else TERRACE_CHECK(resized.error() == Errc::no_room);
      return;
    }
    case 8:
    case 9:
      order_write_back();
      check_jobs();
      return;
    case 10: change_settings(); return;
    default:
      if (winding_down_) return;
      paused_ = true;
      cache_->pause_transfers();
      return;
  }
}

void World::change_settings() {
  if (winding_down_) return;
  CacheSettings settings = cache_->settings();
  const auto any_watermarks = [this] {
    const double low = 0.1 * static_cast<double>(random_.below(3));
    return Watermarks{low, low + 0.1 * static_cast<double>(random_.below(3))};
  };
  switch (random_.below(3)) {
    case 0: settings.policy = static_cast<EvictionPolicyName>(random_.below(3)); break;
    case 1:
      settings.device_reserve_max = 0.1 * static_cast<double>(random_.below(4));
      settings.device_watermarks = any_watermarks();
      settings.host_watermarks = any_watermarks();
      break;
    default:
      if (options_.manager.storage) settings.write_policy = static_cast<WritePolicy>(random_.below(4));
      settings.selective_hits = static_cast<std::uint32_t>(random_.between(1, 3));
      break;
  }
  const Result<void> changed = cache_->change(settings);
  if (changed) {
    ++seen_->settings;
    return;
  }
  // Only a policy of the world's own can be refused: it may not rank, or there may be none.
  TERRACE_CHECK(settings.policy == EvictionPolicyName::own);
  const bool is_named = options_.policy == tools::PolicyKind::lru || options_.policy == tools::PolicyKind::adaptive;
  TERRACE_CHECK(changed.error() == (is_named ? Errc::invalid_argument : Errc::in_use));
}

void World::resize_storage(PoolId pool) {
  const auto blocks = static_cast<std::uint32_t>(random_.between(1, stored_blocks_max));
  const std::uint64_t now = stores_[pool.value()]->stat().capacity_blocks;
  TERRACE_CHECK(cache_->resize(Tier::storage, Blocks{blocks}, pool).has_value());
  ++(blocks < now ? seen_->storage_shrunk : seen_->storage_grown);
}

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
