#include "terrace/offload_cache.hpp"

#include "base/failure.hpp"
#include "runtime/engine/cache_state.hpp"

#include <algorithm>
#include <stdexcept>

namespace terrace {

OffloadCache::OffloadCache(Cache& cache, const OffloadLimits& limits) : cache_{cache}, state_{cache.internals()} {
  for (const PoolSizes& pool : state_.manager.config().pools) {
    if (pool.device_blocks == 0) continue;
    throw std::invalid_argument{
        "an OffloadCache needs a cache without device slots of its own: set CacheSystemOptions::engine_owns_slots, or call the "
        "Cache itself (acquire)"};
  }
  state_.manager.offload().set_limits(limits);
}

/// The same as look_up(), but is not counted as a look-up of the engine.
Result<void> OffloadCache::see(std::span<const BlockKey> keys, std::span<OffloadHit> hits, PoolId pool, KeyOrder order) const {
  if (pool.value() >= state_.executor.pools().size()) return no_such_pool;
  if (hits.size() != keys.size()) return failure<Errc::invalid_argument, "there must be one of `hits` for each key">;
  state_.manager.offload().look_up(keys, order, pool, hits);
  return {};
}

OffloadHit OffloadCache::look_up(const BlockKey& key, PoolId pool) const {
  OffloadHit hit = OffloadHit::miss;
  (void)look_up(std::span{&key, 1}, std::span{&hit, 1}, pool);
  return hit;
}

Result<void> OffloadCache::look_up(std::span<const BlockKey> keys, std::span<OffloadHit> hits, PoolId pool,
                                   KeyOrder order) const {
  if (const Result<void> known = see(keys, hits, pool, order); !known) return known;
  const auto misses = static_cast<std::size_t>(std::ranges::count(hits, OffloadHit::miss));
  state_.manager.offload().note_question(keys.size(), keys.size() - misses);
  return {};
}

std::uint32_t OffloadCache::leading(std::span<const BlockKey> keys, PoolId pool, KeyOrder order) const {
  hits_.resize(keys.size());
  if (!see(keys, hits_, pool, order)) return 0;
  const bool loads = state_.manager.link().allows();
  const auto found = loads ? static_cast<std::uint32_t>(std::ranges::find(hits_, OffloadHit::miss) - hits_.begin()) : 0;
  state_.manager.offload().note_question(keys.size(), found);
  return found;
}

Result<void> OffloadCache::bitmap(std::span<const BlockKey> keys, std::span<std::uint64_t> bits, PoolId pool,
                                  KeyOrder order) const {
  constexpr std::size_t word = 64;
  if (bits.size() != (keys.size() + word - 1) / word) {
    return failure<Errc::invalid_argument, "`bits` must have one word for each 64 keys, the last one for the rest">;
  }
  hits_.resize(keys.size());
  if (const Result<void> known = look_up(keys, hits_, pool, order); !known) return known;
  std::ranges::fill(bits, 0);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (hits_[i] != OffloadHit::miss) bits[i / word] |= std::uint64_t{1} << (i % word);
  }
  return {};
}

OffloadFound OffloadCache::find(std::span<const BlockKey> keys, PoolId pool, KeyOrder order) {
  hits_.resize(keys.size());
  if (!see(keys, hits_, pool, order)) return {};
  // The next poll() sends questions to the shared store, because that may be a system call.
  return state_.change_in_step([&](CacheManager& manager) {
    state_.note_shared();
    OffloadFound found;
    if (manager.link().allows()) found = manager.offload().find(keys, hits_);
    if (const std::optional<Duration> looked = manager.offload().take_looked()) state_.waits.looked(*looked);
    if (!found.looking) manager.offload().note_question(keys.size(), found.blocks);
    return found;
  });
}

Result<void> OffloadCache::load(const OffloadOrder& order) {
  const CacheState::CallTimer timer{state_, TraceSpan::Kind::load};
  state_.note_time();
  state_.note_shared();
  const Result<void> begun = state_.begin_job(order, Direction::swap_in);
  if (begun && state_.offload_is_watched()) {
    state_.note_offload_asked(order.pool, order.keys.subspan(order.first), [](std::size_t) { return true; });
  }
  return begun;
}

Result<void> OffloadCache::store(const OffloadOrder& order) {
  const CacheState::CallTimer timer{state_, TraceSpan::Kind::store};
  state_.note_time();
  const bool noted = state_.misses_are_noted();
  if (noted) {
    hits_.resize(order.keys.size());
    (void)see(order.keys, hits_, order.pool, order.key_order);
  }
  const Result<void> begun = state_.begin_job(order, Direction::swap_out);
  if (noted && begun) {
    const auto missed = [&](std::size_t i) { return hits_[order.first + i] == OffloadHit::miss; };
    state_.note_offload_computed(order.pool, order.keys.subspan(order.first), missed);
  }
  return begun;
}

Result<void> OffloadCache::cancel(OffloadJobId job) {
  return state_.act([&](CacheManager& manager) { return manager.offload().cancel(job); });
}

Result<Fence> OffloadCache::signal(StreamRef stream, std::uint32_t rank) { return cache_.signal(stream, rank); }

Result<void> OffloadCache::await(OffloadJobId job, std::uint32_t layers, StreamRef stream, std::uint32_t rank) {
  const Result<std::span<const TransferId>> transfers = state_.manager.offload().transfers_for(job, layers);
  if (!transfers) return transfers.error();
  return state_.await(*transfers, layers, stream, rank);
}

Result<std::uint32_t> OffloadCache::pin(OffloadJobId job, std::span<const BlockKey> keys, PoolId pool, std::span<SlotId> slots,
                                        KeyOrder order, std::uint64_t use) {
  const Result<std::uint32_t> pinned = state_.manager.offload().pin(job, keys, order, pool, slots, use);
  if (pinned && !slots.empty() && state_.offload_is_watched()) {
    state_.note_offload_asked(pool, keys.last(slots.size()), [&](std::size_t i) { return slots[i] != no_host_slot; });
  }
  return pinned;
}

Result<void> OffloadCache::unpin(OffloadJobId job) {
  return state_.act([&](CacheManager& manager) { return manager.offload().unpin(job); });
}

std::uint64_t OffloadCache::new_use() {
  state_.note_time();
  return state_.manager.offload().new_use();
}

Result<void> OffloadCache::touch(std::span<const BlockKey> keys, PoolId pool, KeyOrder order) {
  return state_.act([&](CacheManager& manager) { return manager.offload().touch(keys, order, pool); });
}

Result<void> OffloadCache::end_request(std::span<const BlockKey> keys, std::uint64_t output_tokens, PoolId pool, KeyOrder order) {
  return state_.act([&](CacheManager& manager) { return manager.offload().end_request(keys, order, pool, output_tokens); });
}

Result<void> OffloadCache::expect_use(std::span<const BlockKey> keys, Duration in, PoolId pool, KeyOrder order) {
  return state_.act([&](CacheManager& manager) { return manager.offload().expect_use(keys, order, pool, in); });
}

Result<std::uint32_t> OffloadCache::reserve(const OffloadOrder& order, std::span<SlotId> slots) {
  const Result<std::uint32_t> reserved =
      state_.change([&](CacheManager& manager) { return manager.offload().reserve(order, slots); });
  if (reserved && state_.misses_are_noted()) {
    const auto missed = [&](std::size_t i) { return slots[i] != no_host_slot; };
    state_.note_offload_computed(order.pool, order.keys.subspan(order.first), missed);
  }
  return reserved;
}

Result<void> OffloadCache::publish(OffloadJobId job, bool filled) {
  return state_.act([&](CacheManager& manager) { return manager.offload().publish(job, filled); });
}

std::span<const OffloadEvent> OffloadCache::poll() {
  const CacheState::CallTimer timer{state_, TraceSpan::Kind::poll};
  state_.collect();
  state_.manager.offload().take_events(events_);
  state_.end_jobs(events_);
  state_.end_call();
  return events_;
}

int OffloadCache::wake_fd() const { return cache_.wake_fd(); }
TimePoint OffloadCache::next_deadline() const { return cache_.next_deadline(); }
bool OffloadCache::has_pending_work() const { return cache_.has_pending_work(); }
void OffloadCache::stop_accepting() { state_.manager.offload().stop_accepting(); }
void OffloadCache::drain() {
  cache_.resume_transfers();
  cache_.drain();
}
std::uint32_t OffloadCache::unconfirmed() const { return state_.manager.offload().unconfirmed(); }
std::uint32_t OffloadCache::blocks_in_flight() const { return state_.manager.offload().blocks_in_flight(); }
OffloadTotals OffloadCache::totals() const { return state_.manager.offload().totals(); }

}  // namespace terrace
