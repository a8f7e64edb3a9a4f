#pragma once

#include "terrace/clock.hpp"

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

namespace terrace {

/// Limits what one poll handles, so that a poll does not take longer the more has ended. It counts blocks and not time, so
/// that a simulation repeats. Threads: one.
class PollBudget {
 public:
  /// The blocks of a transfer end by run. A block that ends alone costs about as much as this many of them.
  static constexpr std::uint64_t single_block = 8;

  /// `until`: the budget is spent at this time, too.
  PollBudget(std::uint64_t blocks, const Clock& clock, TimePoint until) : left_{blocks}, clock_{clock}, until_{until} {}

  /// The next part of the poll handles at least one event, so that nothing waits forever.
  void begin_part() { begun_ = false; }
  void spend(std::uint64_t blocks) {
    left_ -= blocks < left_ ? blocks : left_;
    begun_ = true;
  }
  [[nodiscard]] bool spent() const { return begun_ && (left_ == 0 || (until_ != never && clock_.now() >= until_)); }

 private:
  std::uint64_t left_;
  const Clock& clock_;
  TimePoint until_;
  bool begun_ = false;
};

/// Events that have come and have not been handled. Threads: one.
template <class Event>
class EndedEvents {
 public:
  [[nodiscard]] bool empty() const { return events_.empty(); }
  /// `poll(events)` appends the events that have come.
  template <class Poll>
  void add(const Poll& poll) {
    poll(events_);
  }
  /// Calls `on_event(Event&)`, which spends some of the budget, for the events for which `wanted(event)` is true, in order, until
  /// the budget is spent. The others stay.
  template <class Wanted, class OnEvent>
  void take(const Wanted& wanted, const OnEvent& on_event, const PollBudget& budget) {
    auto kept = events_.begin();
    auto next = events_.begin();
    for (; next != events_.end() && !budget.spent(); ++next) {
      if (wanted(*next)) on_event(*next);
      else if (kept == next) ++kept;
      else *kept++ = std::move(*next);
    }
    events_.erase(std::move(next, events_.end(), kept), events_.end());
  }

 private:
  std::vector<Event> events_;
};

}  // namespace terrace
