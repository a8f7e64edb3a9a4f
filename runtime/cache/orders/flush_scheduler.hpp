#pragma once

#include "runtime/cache/orders/actions.hpp"
#include "terrace/clock.hpp"
#include "terrace/result.hpp"

#include <cstdint>

namespace terrace {

/// Decides when the store of a pool is flushed, and counts how many stored blocks would survive a power failure. Each flush is a
/// round, numbered from 1. One round is under way at a time. A round begins when ask() is called, and otherwise at most
/// `interval` after a change. The class reads no clock: on_time() tells it the time.
///
/// Threads: the manager's.
class FlushScheduler {
 public:
  /// With an interval of 0, rounds begin only when ask() is called.
  FlushScheduler(Actions& actions, Duration interval) : actions_{actions}, interval_{interval} {}

  /// Blocks have become readable in storage: their writes have ended, or they were found at the start.
  void on_stored(std::uint64_t blocks = 1) {
    stored_ += blocks;
    on_change();
  }
  /// Storage has evicted or removed a block.
  void on_gone() { on_change(); }

  /// Returns the round that covers all changes so far: the round under way if nothing has changed since it began, else the next
  /// one, which begins as soon as possible. A round also detects whether the store still has its files.
  std::uint64_t ask();
  [[nodiscard]] bool ended(std::uint64_t round) const { return ended_ >= round; }
  /// The result of the round that ended last.
  [[nodiscard]] ErrorCode error() const { return error_; }

  void on_time(TimePoint now);
  /// The flush that was under way has ended.
  void on_flushed(ErrorCode error);
  [[nodiscard]] TimePoint next_deadline() const { return under_way() ? never : due_; }
  [[nodiscard]] bool under_way() const { return begun_ > ended_; }

  /// Number of blocks that no flush covers: the blocks that became readable after the begin of the last ended round. If that
  /// round failed, or none has ended, all blocks count, including those found at the start: the process that wrote them may have
  /// been killed before it flushed. Blocks that storage has evicted since still count.
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
  Mark at_begin_;              ///< the counts when the last round began
  std::uint64_t covered_ = 0;  ///< stored_ when the last ended round began; 0 if it failed
};

}  // namespace terrace
