#pragma once

#include "base/random.hpp"
#include "terrace/clock.hpp"
#include "terrace/device.hpp"
#include "terrace/types.hpp"
#include "transfer/device/transfer.hpp"

#include <cstdint>

namespace terrace {

/// Returns true if the command with this number has a fault; `every` is its period, and 0 means never.
[[nodiscard]] constexpr bool is_nth(std::uint64_t number, std::uint64_t every) { return every > 0 && number % every == 0; }

/// The effect of the link on one command.
struct LinkTurn {
  std::uint64_t number = 0;  ///< the number of the command in its direction, from 1
  /// How long the command uses its stream: latency, jitter, stall, and its bytes at the rate of the direction.
  Duration held{};
  bool stalled = false;
  bool fails = false;
};

/// One direction of a link. It decides for each command how long it takes and whether it fails, and reads no clock. The decisions
/// depend only on the model and the commands of this direction. Threads: one.
class LinkStream {
 public:
  /// Throws std::invalid_argument if a duration is negative.
  LinkStream(const LinkModel& model, Direction direction);

  /// Returns the effect of the link on the next command, which moves `moved` bytes.
  [[nodiscard]] LinkTurn next(Bytes moved);

 private:
  LinkDirection link_;
  Random random_;
  std::uint64_t commands_ = 0;
};

}  // namespace terrace
