#pragma once

#include "base/random.hpp"
#include "terrace/clock.hpp"
#include "terrace/types.hpp"
#include "transfer/device/transfer.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

namespace terrace {

/// The behaviour of one direction of an emulated link. "Every n-th" counts commands from 1; 0 means never.
struct LinkDirection {
  Bytes bytes_per_second{};  ///< 0: no limit
  /// The delay of every command before its bytes move.
  Duration latency{};
  /// Each command takes longer by a random time up to this. The time is uniformly distributed, by the seed of the link.
  Duration jitter_max{};
  /// The stream stalls for `stall` before the bytes of every n-th command.
  std::uint64_t stall_every = 0;
  Duration stall{};
  /// Every n-th command ends with io_failed, after half of its first block was written.
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

/// The effect of the link on one command.
struct LinkTurn {
  std::uint64_t number = 0;  ///< the number of the command in its direction, from 1
  /// How long the command uses its stream: latency, jitter, stall, and its bytes at the rate of the direction.
  Duration held{};
  bool stalled = false;
  bool fails = false;
};

/// One direction of a link. It decides for each command how long it takes and whether it fails, and reads no clock. The same
/// model does the same to the same commands, whatever the other direction does. Threads: one.
class LinkStream {
 public:
  /// Throws std::invalid_argument if a duration is negative.
  LinkStream(const LinkModel& model, Direction direction);

  /// Returns what the link does to the next command, which moves `moved` bytes.
  [[nodiscard]] LinkTurn next(Bytes moved);

 private:
  LinkDirection link_;
  Random random_;
  std::uint64_t commands_ = 0;
};

}  // namespace terrace
