#include "transfer/emulated/link_model.hpp"

#include "transfer/device/transfer.hpp"

#include <algorithm>
#include <stdexcept>

namespace terrace {

LinkStream::LinkStream(const LinkModel& model, Direction direction)
    : link_{model[direction]}, random_{model.seed * direction_count + static_cast<std::uint64_t>(direction)} {
  if (std::min({link_.latency, link_.jitter_max, link_.stall}) < Duration{}) {
    throw std::invalid_argument{"link model: latency, jitter and stall must not be negative"};
  }
}

LinkTurn LinkStream::next(Bytes moved) {
  LinkTurn turn;
  turn.number = ++commands_;
  turn.held = link_.latency;
  if (count(link_.bytes_per_second) > 0) turn.held += time_for(moved, link_.bytes_per_second);
  if (link_.jitter_max > Duration{}) {
    const auto longest = static_cast<std::uint64_t>(link_.jitter_max.count());
    turn.held += Duration{static_cast<Duration::rep>(random_.between(0, longest))};
  }
  turn.stalled = is_nth(turn.number, link_.stall_every);
  if (turn.stalled) turn.held += link_.stall;
  turn.fails = is_nth(turn.number, link_.fail_every);
  return turn;
}

}  // namespace terrace
