#pragma once

#include "terrace/clock.hpp"

#include <chrono>
#include <cstdint>
#include <string>

namespace terrace {

/// Says when to log that stored blocks did not verify: at once, and then once in a minute while there are more. Threads: one.
class DamageNotice {
 public:
  /// `corrupt`: blocks since the start. Returns whether more of them are to be logged now.
  [[nodiscard]] bool is_due(std::uint64_t corrupt, TimePoint now) const { return corrupt > told_ && now >= next_; }
  /// Returns the sentence to log, which is then logged. `now` is `never` for the last call.
  [[nodiscard]] std::string tell(std::uint64_t corrupt, TimePoint now);

 private:
  std::uint64_t told_ = 0;
  TimePoint next_{};
};

}  // namespace terrace
