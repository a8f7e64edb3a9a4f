#pragma once

#include "runtime/admin/mailbox.hpp"
#include "runtime/admin/observer.hpp"
#include "runtime/admin/snapshot.hpp"
#include "terrace/cache.hpp"
#include "terrace/clock.hpp"

#include <algorithm>
#include <functional>
#include <string_view>

namespace terrace::admin {

/// The part of the admin endpoint on the thread of the cache: publishes snapshots, and carries out commands. The cache calls it
/// at the end of each poll; if nothing is due, the call costs two comparisons.
///
/// Ownership: the mailbox and the clock must outlive it. Threads: the thread of the cache.
class CacheAdmin final : public Observer {
 public:
  /// Adds to a snapshot the data that the cache itself does not have.
  using Complete = std::function<void(AdminSnapshot&)>;
  /// CacheSystem::resume_shared.
  using ResumeShared = std::function<Result<void>(std::string_view weights_revision)>;

  /// Publishes a snapshot every `interval`, and after each command.
  CacheAdmin(Mailbox& mailbox, const Clock& clock, Duration interval) : Observer{mailbox, clock}, publisher_{mailbox, interval} {}

  /// Call it before the first poll. Without `resume_shared`, an Update is refused.
  void begin(Cache& cache, Complete complete = {}, ResumeShared resume_shared = {});
  /// The cache ends: the last commands are refused. Nothing happens afterwards.
  void end() { publisher_.end(); }

  void on_polled(TimePoint now) override { publisher_.on_polled(now, end_captures(now)); }
  [[nodiscard]] TimePoint next_deadline() const override {
    const TimePoint next = publisher_.next_deadline();
    return next == never ? never : std::min(next, Observer::next_deadline());
  }

 private:
  void describe(const Cache& cache, AdminSnapshot& snapshot);

  Publisher publisher_;
  Complete complete_;
  ResumeShared resume_shared_;
};

}  // namespace terrace::admin
