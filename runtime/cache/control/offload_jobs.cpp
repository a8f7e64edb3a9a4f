#include "runtime/cache/control/offload_jobs.hpp"

#include "base/check.hpp"
#include "base/failure.hpp"

#include <algorithm>
#include <optional>
#include <utility>

namespace terrace {
namespace {

constexpr auto& no_more_orders = failure<Errc::stopped, "no orders are taken any more: stop_accepting() was called">;
constexpr auto& no_such_use = failure<Errc::invalid_argument, "`use` is no number that new_use() has returned">;
constexpr auto& no_such_job = failure<Errc::not_found, "there is no job of this id, or its `ended` event was polled">;

}  // namespace

void OffloadJobs::look_up(std::span<const BlockKey> keys, KeyOrder order, PoolId pool, std::span<OffloadHit> hits) const {
  std::ranges::fill(hits, OffloadHit::miss);
  if (state_.status != CacheStatus::normal) return;
  const NamedCopies& copies = groups_.at(pool).named_copies();
  copies.find(keys, order, found_);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (const auto block = block_of(i, copies.flat(order))) hits[i] = copies.look_up(*block);
  }
}

/// The block of key `i` of the last look-up; nothing if it is not cached.
std::optional<BlockRef> OffloadJobs::block_of(std::size_t i, bool flat) const {
  const Prefix prefix = flat ? found_[i] : found_.front();
  const auto depth = flat ? 0U : static_cast<std::uint32_t>(i);
  return depth < prefix.length ? std::optional{BlockRef{prefix.node, depth}} : std::nullopt;
}

OffloadFound OffloadJobs::find(std::span<const BlockKey> keys, std::span<const OffloadHit> hits) {
  const auto leading_from = [&](std::uint32_t from) {
    return static_cast<std::uint32_t>(std::ranges::find(hits.subspan(from), OffloadHit::miss) - hits.begin());
  };
  const std::uint32_t local = leading_from(0);
  const bool asks = state_.shared_usable && state_.status == CacheStatus::normal && !stopped_;
  if (local == keys.size() || !asks) return {local, false};
  OffloadFound found = questions_.find(keys, local);
  if (found.blocks > local) found.blocks = leading_from(found.blocks);
  return found;
}

Result<void> OffloadJobs::check(const OffloadOrder& order, Direction direction) const {
  if (stopped_) return no_more_orders;
  if (state_.status != CacheStatus::normal) return Errc::paused;
  if (jobs_.contains(order.id)) {
    return failure<Errc::duplicate_request, "a job of this id is under way: its id is free when its `ended` event was polled">;
  }
  if (const Result<void> keys = check_keys(order); !keys) return keys;
  if (!order.beside.empty() && direction == Direction::swap_in) {
    return failure<Errc::invalid_argument, "`beside` is for stores: a load needs none">;
  }
  const TieredPool& pool = groups_.at(order.pool);
  const std::size_t blocks = order.keys.size() - order.first;
  const bool named = !order.slots.empty() || !order.memory.empty();
  if (!named && direction == Direction::swap_out && blocks > 0) {
    return failure<Errc::invalid_argument, "a store needs `slots` or `memory`: where its blocks are">;
  }
  if (!order.slots.empty() && !order.memory.empty()) {
    return failure<Errc::invalid_argument, "an order has `slots` or `memory`, not both">;
  }
  if (named && order.slots.size() + order.memory.size() != blocks) {
    return failure<Errc::invalid_argument, "`slots` (or `memory`) must have one element for each key from `first` on">;
  }
  const Bytes block_bytes = pool.storage_writer().block_bytes();
  const auto fits = [&](std::span<std::byte> memory) { return memory.data() != nullptr && memory.size() == count(block_bytes); };
  if (!std::ranges::all_of(order.memory, fits)) {
    return failure<Errc::invalid_argument, "each element of `memory` must have the size of one block of the pool">;
  }
  if (static_cast<std::size_t>(order.urgency) >= urgency_count) {
    return failure<Errc::invalid_argument, "there is no such urgency">;
  }
  if (jobs_.size() >= limits_.jobs || blocks_in_flight() + blocks > limits_.blocks_in_flight) {
    return failure<Errc::refused, "too many jobs or blocks are under way (OffloadLimits): try again when some have ended">;
  }
  return pool.named_copies().check(order, direction);
}

Result<void> OffloadJobs::check_keys(const OffloadOrder& order) const {
  if (!groups_.has(order.pool)) return no_such_pool;
  if (order.use > state_.last_stamp) return no_such_use;
  if (order.first > order.keys.size()) return failure<Errc::invalid_argument, "`first` is more than the number of keys">;
  if (groups_.at(order.pool).named_copies().flat(order.key_order) && order.first > 0) {
    return failure<Errc::invalid_argument, "`first` must be 0, because the keys stand alone">;
  }
  if (order.beside.empty()) return {};
  const NamedCopies& copies = groups_.at(order.pool).named_copies();
  if (copies.flat(KeyOrder::prefix) || !copies.flat(order.key_order)) {
    return failure<Errc::invalid_argument, "`beside` is for keys that stand alone, in a cache in prefix order">;
  }
  if (order.beside.size() < order.keys.size()) {
    return failure<Errc::invalid_argument, "`beside` must have a key for each of the keys">;
  }
  return {};
}

/// Returns the first stamp for a use of `keys` blocks. A prefix is used at once; `use` is the stamp if it is not 0. Blocks that
/// stand alone are used one after the other, so each gets its own stamp.
std::uint64_t OffloadJobs::stamp_of(std::uint64_t use, std::size_t keys, KeyOrder order, PoolId pool) {
  if (groups_.at(pool).named_copies().flat(order)) return state_.new_stamps(std::max<std::size_t>(keys, 1));
  return use != 0 ? use : state_.new_stamps();
}

Result<void> OffloadJobs::begin(const OffloadOrder& order, Direction direction) {
  if (const Result<void> checked = check(order, direction); !checked) {
    return refuse(checked.error());
  }
  jobs_.emplace(order.id, Job{order.pool, direction, order.slots.empty() && order.first < order.keys.size()});
  const std::uint64_t stamp = stamp_of(order.use, order.keys.size(), order.key_order, order.pool);
  TieredPool& pool = groups_.at(order.pool);
  std::optional<TimePoint> shared_until;
  if (order.shared && state_.shared_usable) shared_until = state_.now + state_.config.shared.read_timeout;
  if (direction == Direction::swap_in) pool.load_named(order, shared_until, stamp);
  else pool.named_copies().store(order, stamp);
  return {};
}

Result<void> OffloadJobs::cancel(OffloadJobId job) {
  const auto found = jobs_.find(job);
  if (found == jobs_.end()) return no_such_job;
  groups_.at(found->second.pool).named_copies().cancel(job);
  return {};
}

Result<std::span<const TransferId>> OffloadJobs::transfers_for(OffloadJobId id, std::uint32_t layers) {
  const auto found = jobs_.find(id);
  if (found == jobs_.end()) return no_such_job;
  const Job& job = found->second;
  if (job.without_slots) {
    return failure<Errc::invalid_argument,
                   "the job moves no blocks of the device, so no stream can wait for it: poll its events">;
  }
  if (layers == 0) return failure<Errc::invalid_argument, "`layers` is 0: there is nothing to wait for">;
  awaited_.clear();
  const Result<void> known = groups_.at(job.pool).named_copies().transfers_for(id, job.direction, layers, awaited_);
  // In this call, not_found would mean that there is no such job.
  if (!known) return known.error() == Errc::not_found ? make_error_code(Errc::load_failed) : known.error();
  return std::span<const TransferId>{awaited_};
}

Result<std::uint32_t> OffloadJobs::pin(OffloadJobId job, std::span<const BlockKey> keys, KeyOrder order, PoolId pool,
                                       std::span<SlotId> slots, std::uint64_t use) {
  if (stopped_) return no_more_orders;
  if (state_.status != CacheStatus::normal) return Errc::paused;
  if (!groups_.has(pool)) return no_such_pool;
  if (use > state_.last_stamp) return no_such_use;
  if (slots.size() > keys.size()) return failure<Errc::invalid_argument, "there are more `slots` than keys">;
  if (pins_.contains(job)) return failure<Errc::duplicate_request, "there is a pin of this id: end it with unpin() first">;
  const NamedCopies& copies = groups_.at(pool).named_copies();
  copies.find(keys, order, found_);
  const std::size_t first = keys.size() - slots.size();
  for (std::size_t i = first; i < keys.size(); ++i) {
    const auto block = block_of(i, copies.flat(order));
    slots[i - first] = block ? copies.host_slot(*block) : no_host_slot;
  }
  std::erase_if(found_, [](const Prefix& prefix) { return prefix.length == 0; });
  std::uint32_t blocks = 0;
  for (const Prefix& prefix : found_) blocks += prefix.length;
  if (blocks == 0) return failure<Errc::not_found, "none of the keys is cached">;
  // Only blocks with a slot count. Blocks that only name the prefix do not, because engines that load the end of long prefixes
  // would soon reach the limit.
  const std::uint64_t meant = slots.empty() ? blocks : slots.size();
  if (pinned_ + meant > limits_.pinned_blocks) {
    return failure<Errc::no_room, "too many blocks are pinned (OffloadLimits::pinned_blocks): unpin() some first">;
  }
  for (const Prefix& prefix : found_) groups_.at(pool).pin(prefix);
  if (!slots.empty()) {
    const auto there = static_cast<std::uint64_t>(slots.size() - std::ranges::count(slots, no_host_slot));
    state_.offload_totals.loads += there;
    state_.offload_totals.loaded_host += there;
    engine_moves_ = true;
    count_asked(slots.size(), there);
    groups_.at(pool).use_named(keys, order, stamp_of(use, keys.size(), order, pool));
  }
  pins_.emplace(job, Pin{pool, std::exchange(found_, {}), meant});
  pinned_ += meant;
  return blocks;
}

Result<void> OffloadJobs::unpin(OffloadJobId job) {
  if (!pins_.contains(job)) return failure<Errc::not_found, "there is no pin of this id">;
  end_pin(job);
  return {};
}

Result<void> OffloadJobs::touch(std::span<const BlockKey> keys, KeyOrder order, PoolId pool) {
  if (!groups_.has(pool)) return no_such_pool;
  groups_.at(pool).use_named(keys, order, stamp_of(0, keys.size(), order, pool));
  return {};
}

Result<void> OffloadJobs::end_request(std::span<const BlockKey> keys, KeyOrder order, PoolId pool, std::uint64_t output_tokens) {
  if (!groups_.has(pool)) return no_such_pool;
  groups_.at(pool).end_request(keys, order, output_tokens);
  return {};
}

Result<void> OffloadJobs::expect_use(std::span<const BlockKey> keys, KeyOrder order, PoolId pool, Duration in) {
  if (!groups_.has(pool)) return no_such_pool;
  const NamedCopies& copies = groups_.at(pool).named_copies();
  if (copies.flat(order)) return {};
  copies.find(keys, order, found_);
  state_.expect(groups_.at(pool), found_.front(), in);
  return {};
}

Result<std::uint32_t> OffloadJobs::reserve(const OffloadOrder& order, std::span<SlotId> slots) {
  if (stopped_) return no_more_orders;
  if (state_.status != CacheStatus::normal) return Errc::paused;
  if (const Result<void> keys = check_keys(order); !keys) return keys.error();
  if (slots.size() != order.keys.size() - order.first) {
    return failure<Errc::invalid_argument, "there must be one of `slots` for each key from `first` on">;
  }
  TieredPool& pool = groups_.at(order.pool);
  if (!order.slots.empty() || !order.memory.empty()) {
    return failure<Errc::invalid_argument,
                   "the order of a reservation has neither `slots` nor `memory`: the cache chooses the slots">;
  }
  if (reservations_.contains(order.id)) {
    return failure<Errc::duplicate_request, "there is a reservation of this id: end it with publish() first">;
  }
  if (reserved_ + slots.size() > limits_.pinned_blocks) {
    return failure<Errc::no_room, "too many blocks are reserved (OffloadLimits::pinned_blocks): publish() some first">;
  }
  if (const Result<void> chained = pool.named_copies().check(order, Direction::swap_out); !chained) return chained.error();
  const std::uint64_t stamp = stamp_of(order.use, order.keys.size(), order.key_order, order.pool);
  Reservation reservation{order.pool, pool.named_copies().reserve(order, stamp, slots)};
  const auto blocks = static_cast<std::uint32_t>(reservation.blocks.blocks.size());
  if (blocks > 0) reservations_.emplace(order.id, std::move(reservation));
  reserved_ += blocks;
  engine_moves_ = true;
  count_asked(blocks, 0);
  return blocks;
}

Result<void> OffloadJobs::publish(OffloadJobId job, bool filled) {
  const auto found = reservations_.find(job);
  if (found == reservations_.end()) return failure<Errc::not_found, "there is no reservation of this id">;
  const Reservation reservation = std::move(found->second);
  reservations_.erase(found);
  reserved_ -= reservation.blocks.blocks.size();
  groups_.at(reservation.pool).named_copies().publish(reservation.blocks, filled);
  return {};
}

void OffloadJobs::end_pin(OffloadJobId job) {
  const auto found = pins_.find(job);
  if (found == pins_.end()) return;
  const Pin pin = std::move(found->second);
  pins_.erase(found);
  // The first blocks are unpinned last, as by jobs (NamedCopies).
  pinned_ -= pin.blocks;
  for (std::size_t i = pin.prefixes.size(); i-- > 0;) {
    groups_.at(pin.pool).unpin_incomplete(pin.prefixes[i]);
  }
}

void OffloadJobs::take_events(std::vector<OffloadEvent>& events) {
  events.clear();
  for (TieredPool* const pool : groups_.pools()) pool->named_copies().take_events(events);
  for (const OffloadEvent& event : events) {
    if (event.kind != OffloadEvent::Kind::ended) continue;
    TERRACE_CHECK(jobs_.erase(event.job) == 1);
    end_pin(event.job);
  }
}

}  // namespace terrace
