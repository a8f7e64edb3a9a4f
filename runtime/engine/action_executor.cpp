#include "runtime/engine/action_executor.hpp"

#include "base/check.hpp"
#include "transfer/host/host_arena.hpp"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

namespace terrace {
namespace {

void count_moved(Moved& moved, const Throughput& link, std::uint64_t blocks, Bytes bytes) {
  moved.blocks += blocks;
  moved.bytes += bytes;
  moved.seconds = link.busy_seconds();
}

constexpr unsigned token_bits = 32;

/// Tokens for a store: the token of the order in the lower bits, and the number of the read or write in the clock above it.
std::uint64_t with_number(std::uint64_t token, std::uint32_t number) {
  TERRACE_CHECK(token >> token_bits == 0);
  return std::uint64_t{number} << token_bits | token;
}
std::uint32_t number_of(std::uint64_t token) { return static_cast<std::uint32_t>(token >> token_bits); }
std::uint64_t without_number(std::uint64_t token) { return static_cast<std::uint32_t>(token); }

}  // namespace

void ActionExecutor::carry_out(Actions& actions, PoolId pool) {
  if (paused_) return;
  const PoolParts& parts = pools_[pool.value()];
  for (Transfer& transfer : actions.transfers) {
    const TimePoint now = clock_.now();
    links_[static_cast<std::size_t>(transfer.direction)].began(1, now);
    transfer_clock_.begin(transfer, now);
    transfers_.submit(std::move(transfer));
  }
  for (const TransferId id : actions.cancels) transfers_.cancel(id);
  for (const TransferId id : actions.raises) {
    transfer_clock_.raise(id, Urgency::request);
    transfers_.raise(id, Urgency::request);
  }
  for (const Postponement& later : actions.postponements) transfers_.postpone(later.id, later.deadline);
  if (parts.store != nullptr) {
    if (!actions.touches.empty()) parts.store->touch(actions.touches);
    using Access = TransferClock::Access;
    const TimePoint now = clock_.now();
    store_writes_.clear();
    for (const WriteOrder& order : actions.writes) {
      const std::uint64_t token = with_number(order.token, transfer_clock_.begin(Access::write, now));
      store_writes_.push_back({token, order.block, parts.arena->block(order.from)});
    }
    writes_.began(store_writes_.size(), now);
    if (!store_writes_.empty()) parts.store->write(store_writes_);
    // Removes come after the writes. If transfers were paused, one of the writes may be for a block that was cleared since.
    if (!actions.removes.empty()) parts.store->remove(actions.removes, 0);
    store_reads_.clear();
    for (const ReadOrder& order : actions.reads) {
      const std::uint64_t token = with_number(order.token, transfer_clock_.begin(Access::read, now));
      store_reads_.push_back({token, order.key, parts.arena->block(order.into)});
    }
    reads_.began(store_reads_.size(), now);
    if (!store_reads_.empty()) parts.store->read(store_reads_);
    for (const std::uint64_t round : actions.flushes) parts.store->flush(round);
  }
  for (const MemoryCopy& copy : actions.copies) memory_copies_.push_back({pool, copy});
  actions.clear();
}

/// Returns the number of bytes that it has copied.
std::uint64_t ActionExecutor::make(const MemoryCopy& copy, PoolId pool) {
  const std::span<std::byte> block = pools_[pool.value()].arena->block(copy.slot);
  if (copy.direction == Direction::swap_in) std::memcpy(copy.memory, block.data(), block.size());
  else std::memcpy(block.data(), copy.memory, block.size());
  return block.size();
}

TimePoint ActionExecutor::next_deadline() const {
  if (has_events()) return clock_.now();
  TimePoint next = transfers_.next_deadline();
  for (const PoolParts& pool : pools_) {
    if (pool.store != nullptr) next = std::min(next, pool.store->next_deadline());
  }
  return next;
}

void ActionExecutor::note(const TransferEvent& event) {
  if (event.kind != TransferEvent::Kind::finished) return;
  Throughput& link = links_[static_cast<std::size_t>(event.direction)];
  const TimePoint now = clock_.now();
  const std::optional<TransferClock::Ended> transfer = transfer_clock_.end(event.id, now);
  if (spans_ != nullptr && transfer) {
    const bool failed = !std::ranges::all_of(event.outcomes, [](BlockOutcome outcome) { return outcome == BlockOutcome::done; });
    spans_->on_span({event.direction == Direction::swap_out ? TraceSpan::Kind::swap_out : TraceSpan::Kind::swap_in,
                     event.id.value(), transfer->ordered, now, transfer->blocks, failed});
  }
  link.ended(1, event.moved, now, event.copying);
  count_moved(event.direction == Direction::swap_out ? moved_.swap_out : moved_.swap_in, link,
              static_cast<std::uint64_t>(std::ranges::count(event.outcomes, BlockOutcome::done)), event.moved);
}

/// Replaces the tokens in the event with those of the orders.
void ActionExecutor::note(StoreEvent& event, PoolId pool) {
  event.write_token = without_number(event.write_token);
  const bool is_read = event.kind == StoreEvent::Kind::read;
  if (!is_read && event.kind != StoreEvent::Kind::written) return;
  const bool done = !event.error;
  const Bytes bytes = done ? pools_[pool.value()].store->block_bytes() : Bytes{};
  Throughput& link = is_read ? reads_ : writes_;
  const TimePoint now = clock_.now();
  const TimePoint ordered = transfer_clock_.end(number_of(event.token), now);
  event.token = without_number(event.token);
  if (spans_ != nullptr) {
    spans_->on_span({is_read ? TraceSpan::Kind::storage_read : TraceSpan::Kind::storage_write, 0, ordered, now, 1, !done});
  }
  link.ended(1, bytes, now);
  count_moved(is_read ? moved_.storage_reads : moved_.storage_writes, link, done ? 1 : 0, bytes);
}

}  // namespace terrace
