#pragma once

#include "terrace/clock.hpp"

#include <chrono>
#include <cstdint>
#include <string>

namespace terrace {

/// Decides when to log that stored blocks failed their checksum: at once, and then once a minute while there are more. Threads:
/// one.
class DamageNotice {
 public:
  /// `corrupt` is the number of such blocks since the start. Returns true if new ones must be logged now.
  [[nodiscard]] bool is_due(std::uint64_t corrupt, TimePoint now) const { return corrupt > logged_ && now >= next_; }
  /// Returns the sentence to log, and counts the blocks as logged. `now` is `never` for the last call.
  [[nodiscard]] std::string tell(std::uint64_t corrupt, TimePoint now);

 private:
  std::uint64_t logged_ = 0;
  TimePoint next_{};
};

}  // namespace terrace
