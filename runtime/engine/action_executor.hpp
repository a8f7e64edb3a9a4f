#pragma once

#include "base/fifo.hpp"
#include "runtime/cache/measure/throughput.hpp"
#include "runtime/cache/measure/transfer_clock.hpp"
#include "runtime/cache/orders/actions.hpp"
#include "runtime/engine/cache_parts.hpp"
#include "runtime/engine/ended_events.hpp"
#include "terrace/statistics.hpp"
#include "transfer/engine/transfer_port.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace terrace {

/// Carries out the actions of pools: hands transfers to the engine, and reads, writes, removes and flushes to the stores. It
/// collects the events of both, counts what was moved, and measures how fast the link and the disk are.
///
/// Ownership: the port, the arenas, the stores and the clock outlive it. Threads: one.
class ActionExecutor {
 public:
  /// `pools`: by PoolId.
  ActionExecutor(TransferPort& transfers, std::vector<PoolParts> pools, const Clock& clock)
      : transfers_{transfers}, pools_{std::move(pools)}, clock_{clock}, store_events_(pools_.size()) {}

  [[nodiscard]] TransferPort& transfers() const { return transfers_; }
  /// By PoolId.
  [[nodiscard]] std::span<const PoolParts> pools() const { return pools_; }

  /// While paused, carry_out() does nothing, and the actions stay. Work under way continues.
  void pause() { paused_ = true; }
  void resume() { paused_ = false; }
  [[nodiscard]] bool paused() const { return paused_; }
  /// Starts all work in `actions`, and clears them.
  void carry_out(Actions& actions, PoolId pool);

  /// Takes events, and calls `on_transfer(TransferEvent)` for each event of the engine, and `on_store(const StoreEvent&, PoolId)`
  /// for each event of the stores: first those that a request may wait for, then the others, until the budget is spent. The next
  /// call continues with the events that are left. All events of a transfer are urgent or none is, so their order stays.
  template <class OnTransfer, class OnStore>
  void collect(OnTransfer&& on_transfer, OnStore&& on_store, PollBudget& budget) {
    transfer_events_.add([this](std::vector<TransferEvent>& events) { transfers_.poll(events); });
    for (std::size_t number = 0; number < pools_.size(); ++number) {
      if (pools_[number].store == nullptr) continue;
      store_events_[number].add([this, number](std::vector<StoreEvent>& events) { pools_[number].store->poll(events); });
    }
    for (const bool urgent : {true, false}) {
      budget.begin_part();
      transfer_events_.take([&](const TransferEvent& event) { return transfer_clock_.is_urgent(event.id) == urgent; },
                            [&](TransferEvent& event) {
                              budget.spend(std::max<std::uint64_t>(event.outcomes.size(), 1));
                              note(event);
                              on_transfer(std::move(event));
                            },
                            budget);
      for (std::size_t number = 0; number < pools_.size(); ++number) {
        const PoolId pool{static_cast<std::uint16_t>(number)};
        store_events_[number].take([&](const StoreEvent& event) { return (event.kind == StoreEvent::Kind::read) == urgent; },
                                   [&](StoreEvent& event) {
                                     budget.spend(PollBudget::single_block);
                                     note(event, pool);
                                     on_store(event, pool);
                                   },
                                   budget);
      }
    }
  }
  /// The last collect() has left events.
  [[nodiscard]] bool has_events() const {
    return !transfer_events_.empty() || !std::ranges::all_of(store_events_, &EndedEvents<StoreEvent>::empty);
  }
  /// Makes some of the copies between the arenas and memory of the caller: at most memory_bytes_a_call bytes, so that the call
  /// stays short. Calls `on_copied(token, PoolId)` for each copy.
  template <class OnCopied>
  void copy_memory(OnCopied&& on_copied) {
    std::uint64_t left = memory_bytes_a_call;
    while (has_memory_copies() && left > 0) {
      const auto [pool, copy] = memory_copies_.front();
      memory_copies_.pop_front();
      const std::uint64_t bytes = make(copy, pool);
      left -= left < bytes ? left : bytes;
      on_copied(copy.token, pool);
    }
  }
  [[nodiscard]] bool has_memory_copies() const { return !memory_copies_.empty(); }
  /// The time at which collect() must be called even if nothing wakes the caller. It is now if the last call has left events.
  [[nodiscard]] TimePoint next_deadline() const;

  /// Reports to `sink` the transfers that end from now on, and the reads and writes that are ordered from now on. nullptr:
  /// reports nothing.
  void trace_to(SpanSink* sink) { spans_ = sink; }

  [[nodiscard]] std::uint64_t transfers_under_way() const { return links_[0].under_way() + links_[1].under_way(); }
  [[nodiscard]] std::uint64_t reads_under_way() const { return reads_.under_way(); }
  [[nodiscard]] std::uint64_t writes_under_way() const { return writes_.under_way(); }
  [[nodiscard]] const TransferClock& transfer_clock() const { return transfer_clock_; }
  [[nodiscard]] const MovedTotals& moved() const { return moved_; }
  [[nodiscard]] const Throughput& link(Direction direction) const { return links_[static_cast<std::size_t>(direction)]; }
  [[nodiscard]] const Throughput& reads() const { return reads_; }

 private:
  /// A call makes no further copy after this many bytes. It always copies at least one block.
  static constexpr std::uint64_t memory_bytes_a_call = std::uint64_t{8} << 20U;
  struct PoolCopy {
    PoolId pool;
    MemoryCopy copy;
  };

  std::uint64_t make(const MemoryCopy& copy, PoolId pool);
  void note(const TransferEvent& event);
  void note(StoreEvent& event, PoolId pool);

  TransferPort& transfers_;
  std::vector<PoolParts> pools_;
  const Clock& clock_;
  bool paused_ = false;
  MovedTotals moved_;
  TransferClock transfer_clock_;
  Throughput links_[direction_count] = {Throughput{Throughput::Times::told}, Throughput{Throughput::Times::told}};
  Throughput reads_;
  Throughput writes_;
  SpanSink* spans_ = nullptr;
  EndedEvents<TransferEvent> transfer_events_;
  std::vector<EndedEvents<StoreEvent>> store_events_;  ///< by PoolId
  Fifo<PoolCopy> memory_copies_;
  std::vector<StoreRead> store_reads_;
  std::vector<StoreWrite> store_writes_;
};

}  // namespace terrace
