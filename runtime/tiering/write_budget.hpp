#pragma once

#include "base/bytes.hpp"
#include "base/clock.hpp"

#include <chrono>

namespace terrace {

/// What a drive may be written to in a day: flash wears out. A day begins with the first write, and with the first after it is
/// over. Known to this process only: a restart begins another day. Reads no clock: it is told. Threads: one.
class WriteBudget {
 public:
  /// 0: no limit. What was written today counts.
  void limit(Bytes per_day) { per_day_ = per_day; }
  void on_time(TimePoint now) {
    now_ = now;
    if (now < day_ends_) return;
    written_ = {};
    day_ends_ = {};
  }
  [[nodiscard]] bool take(Bytes bytes) {
    if (limited() && (bytes > per_day_ || written_ > per_day_ - bytes)) return false;
    if (day_ends_ == TimePoint{}) day_ends_ = now_ + std::chrono::hours{24};
    written_ = Bytes{count(written_) + count(bytes)};
    return true;
  }
  /// Of what was taken, and not written after all.
  void give_back(Bytes bytes) { written_ = written_ > bytes ? written_ - bytes : Bytes{}; }

  [[nodiscard]] bool limited() const { return count(per_day_) > 0; }
  [[nodiscard]] Bytes per_day() const { return per_day_; }
  [[nodiscard]] Bytes written() const { return written_; }

 private:
  Bytes per_day_{};
  Bytes written_{};
  TimePoint day_ends_{};
  TimePoint now_{};
};

}  // namespace terrace
