#pragma once

#include "terrace/clock.hpp"
#include "terrace/types.hpp"

#include <chrono>

namespace terrace {

/// Limits how many bytes are written to a drive in a day, because flash memory wears out. A day is 24 hours. It begins with the
/// first write, and the next day begins with the first write after it has ended. The count is kept in this process only: a
/// restart begins a new day. The class reads no clock: on_time() gives it the time.
///
/// Threads: one.
class WriteBudget {
 public:
  /// Sets the limit. 0 means no limit. Bytes that were written today already count.
  void limit(Bytes per_day) { per_day_ = per_day; }
  void on_time(TimePoint now) {
    now_ = now;
    if (now < day_ends_) return;
    written_ = {};
    day_ends_ = {};
  }
  /// Counts these bytes as written. Returns false, and counts nothing, if they would exceed the limit.
  [[nodiscard]] bool take(Bytes bytes) {
    if (limited() && (bytes > per_day_ || written_ > per_day_ - bytes)) return false;
    if (day_ends_ == TimePoint{}) day_ends_ = now_ + std::chrono::hours{24};
    written_ = Bytes{count(written_) + count(bytes)};
    return true;
  }
  /// Takes back bytes that take() has counted, but that were not written.
  void give_back(Bytes bytes) { written_ = written_ > bytes ? written_ - bytes : Bytes{}; }

  [[nodiscard]] bool limited() const { return count(per_day_) > 0; }
  [[nodiscard]] Bytes per_day() const { return per_day_; }
  [[nodiscard]] Bytes written() const { return written_; }
  /// Time since the day began; 0 before its first write.
  [[nodiscard]] Duration elapsed() const {
    return day_ends_ == TimePoint{} ? Duration{} : now_ - (day_ends_ - std::chrono::hours{24});
  }

 private:
  Bytes per_day_{};
  Bytes written_{};
  TimePoint day_ends_{};
  TimePoint now_{};
};

/// The writes of all pools of a cache to the shared store, under way and per day. The limits of SharedConfig apply to their sum.
/// The SharedWriter of each pool reads and changes it.
///
/// Ownership: ModelGroups owns it. Threads: the manager's.
struct SharedWriteLimits {
  Bytes writing{};         ///< bytes that are being written
  TimePoint next_write{};  ///< when SharedConfig::write_rate allows the next write
  WriteBudget budget;      ///< of SharedConfig::daily_write_bytes
};

}  // namespace terrace
