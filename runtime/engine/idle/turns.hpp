#pragma once

#include "terrace/clock.hpp"
#include "terrace/statistics.hpp"

#include <atomic>
#include <cstdint>
#include <mutex>

namespace terrace {

/// Decides which thread works on an object: the owner, in turns (a call or a step), or the idle service, in slices. The owner has
/// priority: it waits at most for the end of one slice, and after its turn the service waits until the owner has made no call for
/// a while.
///
/// Threads: begin() and end() from the owner's thread, or from several that take turns; the members of the service from its
/// thread; taken() and wanted() from any.
class Turns {
 public:
  explicit Turns(const Clock& clock) : clock_{clock} {}

  // ---- the owner

  /// May be nested. Waits while the service is in a slice.
  void begin() {
    if (!mutex_.try_lock()) wait();
    taken_.store(taken_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    ++users_;
  }
  void end() {
    --users_;
    mutex_.unlock();
  }
  /// No slice begins before this time. Call it in a turn.
  void pause_service(TimePoint until) { paused_until_ = until; }
  /// Returns true during a turn or a slice. Code that needs one checks it: false shows that a turn is missing.
  [[nodiscard]] bool held() const { return users_ > 0; }
  /// Total of the waits of the owner for the end of a slice. Call it in a turn.
  [[nodiscard]] const TimeTotal& waits() const { return waits_; }
  /// Total of the slices so far. Call it in a turn.
  [[nodiscard]] const TimeTotal& slices() const { return slices_; }

  // ---- the service

  /// Number of turns that have begun.
  [[nodiscard]] std::uint64_t taken() const { return taken_.load(std::memory_order_relaxed); }
  /// Begins a slice, unless a turn is under way, a turn has begun since taken() returned `seen`, or the service is paused. Never
  /// waits.
  [[nodiscard]] bool try_slice(std::uint64_t seen) {
    if (!mutex_.try_lock()) return false;
    const TimePoint now = clock_.now();
    if (taken() == seen && now >= paused_until_) {
      slice_begun_ = now;
      ++users_;
      return true;
    }
    mutex_.unlock();
    return false;
  }
  void end_slice() {
    slices_.add(clock_.now() - slice_begun_);
    --users_;
    mutex_.unlock();
  }
  /// Returns true if the owner waits for the end of the slice.
  [[nodiscard]] bool wanted() const { return wanted_.load(std::memory_order_relaxed); }

 private:
  void wait() {
    wanted_.store(true, std::memory_order_relaxed);
    const TimePoint begun = clock_.now();
    mutex_.lock();
    waits_.add(clock_.now() - begun);
    wanted_.store(false, std::memory_order_relaxed);
  }

  const Clock& clock_;
  std::recursive_mutex mutex_;
  std::atomic<std::uint64_t> taken_{0};
  std::atomic<bool> wanted_{false};
  // Protected by mutex_:
  std::uint32_t users_ = 0;  ///< number of nested turns; 1 in a slice
  TimePoint slice_begun_{};
  TimePoint paused_until_{};
  TimeTotal waits_;
  TimeTotal slices_;
};

}  // namespace terrace
