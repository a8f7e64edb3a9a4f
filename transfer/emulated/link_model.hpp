#pragma once

#include "base/bytes.hpp"
#include "base/clock.hpp"
#include "base/random.hpp"
#include "transfer/device/transfer.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

namespace terrace {

/// How one direction of an emulated link behaves. Every n-th: commands are counted from 1; 0 is never.
struct LinkDirection {
  Bytes bytes_per_second{};  ///< 0: as fast as memory goes
  /// Of every command, before its bytes.
  Duration latency{};
  /// Each command takes up to so much longer, evenly drawn from the link's seed.
  Duration jitter_max{};
  /// The stream stands still for `stall` before every n-th command's bytes.
  std::uint64_t stall_every = 0;
  Duration stall{};
  /// Every n-th command ends with io_failed, half of its first block written.
  std::uint64_t fail_every = 0;
};

struct LinkModel {
  std::array<LinkDirection, direction_count> directions{};  ///< by Direction
  std::uint64_t seed = 1;

  [[nodiscard]] LinkDirection& operator[](Direction direction) { return directions[static_cast<std::size_t>(direction)]; }
  [[nodiscard]] const LinkDirection& operator[](Direction direction) const {
    return directions[static_cast<std::size_t>(direction)];
  }
};

/// What the link does to one command.
struct LinkTurn {
  std::uint64_t number = 0;  ///< of this direction's commands, from 1
  /// For how long the command keeps its stream: latency, jitter, stall and its bytes at the direction's rate.
  Duration held{};
  bool stalled = false;
  bool fails = false;
};

/// One direction of a link, command by command, without a clock: the same model does the same to the same commands, whatever
/// the other direction does. Threads: one.
class LinkStream {
 public:
  /// Throws std::invalid_argument where a duration is negative.
  LinkStream(const LinkModel& model, Direction direction);

  [[nodiscard]] LinkTurn next(Bytes moved);

 private:
  LinkDirection link_;
  Random random_;
  std::uint64_t commands_ = 0;
};

}  // namespace terrace
