#pragma once

#include "runtime/cache/measure/throughput.hpp"
#include "runtime/cache/measure/trace_span.hpp"
#include "runtime/cache/orders/actions.hpp"
#include "runtime/engine/cache_parts.hpp"
#include "runtime/engine/ended_events.hpp"
#include "terrace/clock.hpp"
#include "terrace/shared_store.hpp"
#include "terrace/statistics.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace terrace {

/// Gives the shared store its work, collects its events, counts the bytes that were moved, and measures its speed.
///
/// Ownership: the store, the arenas and the clock outlive it. Threads: one.
class SharedExecutor {
 public:
  /// `store`: nullptr if there is none; then only on() may be called. The arenas of `pools` have the slots that the work names.
  SharedExecutor(SharedStore* store, std::span<const PoolParts> pools, const Clock& clock);

  [[nodiscard]] bool on() const { return store_ != nullptr; }
  [[nodiscard]] SharedStore& store() { return *store_; }
  /// Starts all work in `actions`, which are those of the pool, and clears them.
  void carry_out(SharedActions& actions, PoolId pool);

  struct Ended {
    SharedEvent::Kind kind = SharedEvent::Kind::read;
    PoolId pool;
    SharedActions::Probe::Asker asker = SharedActions::Probe::Asker::requests;  ///< asker of a probe
    std::uint32_t token = 0;                                                    ///< token of the order
    ErrorCode error;
    std::uint32_t leading = 0;
  };
  /// Takes what has ended, and calls `on_ended(const Ended&)` for each: first probes and reads, for which requests may wait, then
  /// writes, until the budget is spent. The next call continues with what is left.
  template <class OnEnded>
  void collect(OnEnded&& on_ended, PollBudget& budget) {
    events_.add([this](std::vector<SharedEvent>& events) { store_->poll(events); });
    for (const bool is_write : {false, true}) {
      budget.begin_part();
      events_.take([&](const SharedEvent& event) { return (event.kind == SharedEvent::Kind::written) == is_write; },
                   [&](const SharedEvent& event) {
                     budget.spend(PollBudget::single_block);
                     on_ended(note(event));
                   },
                   budget);
    }
  }
  /// The last collect() has left events.
  [[nodiscard]] bool has_events() const { return !events_.empty(); }
  /// It is now if there are events.
  [[nodiscard]] TimePoint next_deadline() const {
    if (!on()) return never;
    return has_events() ? clock_.now() : store_->next_deadline();
  }

  void trace_to(SpanSink* sink) { spans_ = sink; }

  /// The reads or the writes so far.
  struct Copies {
    Throughput speed;
    Moved moved;
    TimeTotal times;  ///< from the order to the end of each
  };
  [[nodiscard]] const Copies& reads() const { return reads_; }
  [[nodiscard]] const Copies& writes() const { return writes_; }
  [[nodiscard]] const TimeTotal& probe_times() const { return probe_times_; }

 private:
  /// The kind of work that a token of the store stands for. Each kind has its own numbers in each pool.
  enum class Kind : std::uint8_t { request_probe, writer_probe, read, write };
  static constexpr std::size_t kind_count = 4;
  static constexpr unsigned number_bits = 30;
  static constexpr unsigned kind_bits = 2;

  /// When the work of a pool was ordered, by its kind and number.
  using Begun = std::array<std::vector<TimePoint>, kind_count>;

  [[nodiscard]] std::uint64_t begin(PoolId pool, Kind kind, std::uint32_t number, TimePoint now);
  [[nodiscard]] static std::uint64_t token_of(PoolId pool, Kind kind, std::uint32_t number);
  [[nodiscard]] Ended note(const SharedEvent& event);

  SharedStore* store_;
  std::vector<const HostArena*> arenas_;  ///< by PoolId, like begun_
  const Clock& clock_;
  Copies reads_;
  Copies writes_;
  TimeTotal probe_times_;
  SpanSink* spans_ = nullptr;
  std::vector<Begun> begun_;
  EndedEvents<SharedEvent> events_;
  std::vector<SharedRead> batch_reads_;  ///< scratch, like the next one
  std::vector<SharedWrite> batch_writes_;
};

}  // namespace terrace
