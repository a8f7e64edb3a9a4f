#include "runtime/cache/action_executor.hpp"

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

}  // namespace

void ActionExecutor::carry_out(Actions& actions, PoolId pool) {
  if (actions.empty() || paused_) return;
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
      store_writes_.push_back({order.token, order.block, parts.arena->block(order.from)});
      transfer_clock_.begin(Access::write, pool, order.token, now);
    }
    writes_.began(store_writes_.size(), now);
    if (!store_writes_.empty()) parts.store->write(store_writes_);
    // Removes come after the writes. If transfers were paused, one of the writes may be for a block that was cleared since.
    if (!actions.removes.empty()) parts.store->remove(actions.removes, 0);
    store_reads_.clear();
    for (const ReadOrder& order : actions.reads) {
      store_reads_.push_back({order.token, order.key, parts.arena->block(order.into)});
      transfer_clock_.begin(Access::read, pool, order.token, now);
    }
    reads_.began(store_reads_.size(), now);
    if (!store_reads_.empty()) parts.store->read(store_reads_);
    for (const std::uint64_t round : actions.flushes) parts.store->flush(round);
  }
  for (const MemoryCopy& copy : actions.copies) memory_copies_.push_back({pool, copy});
  actions.clear();
}

/// Returns how many bytes it has copied.
std::uint64_t ActionExecutor::make(const MemoryCopy& copy, PoolId pool) {
  const std::span<std::byte> block = pools_[pool.value()].arena->block(copy.slot);
  if (copy.direction == Direction::swap_in) std::memcpy(copy.memory, block.data(), block.size());
  else std::memcpy(block.data(), copy.memory, block.size());
  return block.size();
}

void ActionExecutor::trace_to(SpanSink* sink) { spans_ = sink; }

TimePoint ActionExecutor::next_deadline() const {
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

void ActionExecutor::note(const StoreEvent& event, PoolId pool) {
  const bool is_read = event.kind == StoreEvent::Kind::read;
  if (!is_read && event.kind != StoreEvent::Kind::written) return;
  const bool done = !event.error;
  const Bytes bytes = done ? pools_[pool.value()].store->block_bytes() : Bytes{};
  Throughput& link = is_read ? reads_ : writes_;
  const TimePoint now = clock_.now();
  const auto access = is_read ? TransferClock::Access::read : TransferClock::Access::write;
  const std::optional<TimePoint> ordered = transfer_clock_.end(access, pool, event.token, now);
  if (spans_ != nullptr && ordered) {
    spans_->on_span({is_read ? TraceSpan::Kind::storage_read : TraceSpan::Kind::storage_write, 0, *ordered, now, 1, !done});
  }
  link.ended(1, bytes, now);
  count_moved(is_read ? moved_.storage_reads : moved_.storage_writes, link, done ? 1 : 0, bytes);
}

}  // namespace terrace
