#pragma once

#include "base/clock.hpp"
#include "base/result.hpp"
#include "runtime/tiering/actions.hpp"

#include <cstdint>

namespace terrace {

/// When a pool's storage is flushed, and how much of what it holds a power failure would leave. Rounds have numbers, from 1; one
/// is under way at a time. They begin when somebody asks, and by themselves at most `interval` after something has changed.
/// Reads no clock: it is told. Threads: the manager's.
class FlushScheduler {
 public:
  /// An interval of 0: only when asked.
  FlushScheduler(Actions& actions, Duration interval) : actions_{actions}, interval_{interval} {}

  /// A block has become readable in storage: a write has ended, or it was found there at the start.
  void on_stored(std::uint64_t blocks = 1) {
    stored_ += blocks;
    on_change();
  }
  /// Storage gave a block up.
  void on_gone() { on_change(); }

  /// The round that covers what storage has told so far, and finds out that it still has it: one that is under way, or the next.
  std::uint64_t ask();
  [[nodiscard]] bool ended(std::uint64_t round) const { return ended_ >= round; }
  /// What became of the round that ended last.
  [[nodiscard]] ErrorCode error() const { return error_; }

  void on_time(TimePoint now);
  /// Of the flush that is under way.
  void on_flushed(ErrorCode error);
  [[nodiscard]] TimePoint next_deadline() const { return under_way() ? never : due_; }
  [[nodiscard]] bool under_way() const { return begun_ > ended_; }

  /// How many blocks no flush covers: those that became readable after the begin of the last round that has ended. If that round
  /// failed, or none has ended, this counts all blocks, also those found at the start: the process that wrote them may have been
  /// killed before it flushed. Blocks that storage has given up since still count.
  [[nodiscard]] std::uint64_t not_covered() const { return stored_ - covered_; }

 private:
  struct Mark {
    std::uint64_t changes = 0;
    std::uint64_t stored = 0;
  };

  void on_change();
  void begin();

  Actions& actions_;
  Duration interval_;
  TimePoint now_{};
  TimePoint due_ = never;
  std::uint64_t begun_ = 0;
  std::uint64_t ended_ = 0;
  std::uint64_t asked_ = 0;
  ErrorCode error_;
  std::uint64_t changes_ = 0;
  std::uint64_t stored_ = 0;
  Mark at_begin_;              ///< of the last round
  std::uint64_t covered_ = 0;  ///< stored_ when the last round began, if it ended well
};

}  // namespace terrace
