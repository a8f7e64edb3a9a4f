#pragma once

#include "runtime/admin/mailbox.hpp"
#include "runtime/admin/observer.hpp"
#include "runtime/admin/snapshot.hpp"
#include "runtime/engine/cache_parts.hpp"
#include "terrace/cache.hpp"
#include "terrace/clock.hpp"

#include <algorithm>
#include <functional>
#include <span>
#include <string_view>

namespace terrace::admin {

/// The part of the admin endpoint on the thread of the cache: publishes snapshots, and carries out commands. The cache calls it
/// at the end of each poll; if nothing is due, the call costs two comparisons.
///
/// Ownership: the mailbox and the clock must outlive it. Threads: the thread of the cache.
class CacheAdmin final : public CacheWatch {
 public:
  /// Adds to a snapshot the data that the cache itself does not have.
  using Complete = std::function<void(AdminSnapshot&)>;
  /// CacheSystem::resume_shared.
  using ResumeShared = std::function<Result<void>(std::string_view weights_revision)>;

  /// Publishes a snapshot every `interval`, and after each command.
  CacheAdmin(Mailbox& mailbox, const Clock& clock, Duration interval)
      : clock_{clock}, publisher_{mailbox, interval}, observer_{mailbox, clock} {}

  /// Call it before the first poll. Without `resume_shared`, an Update is refused.
  void begin(Cache& cache, Complete complete = {}, ResumeShared resume_shared = {});
  /// The cache ends: the last commands are refused. Nothing happens afterwards.
  void end() { publisher_.end(); }

  void on_polled(TimePoint now) override { publisher_.on_polled(now, observer_.end_captures(now)); }
  void on_acquired(const AcquireRequest& request) override { observer_.on_acquired(request); }
  void on_committed(RequestId id, std::span<const BlockKey> keys) override { observer_.on_committed(id, keys); }
  void on_released(RequestId id) override { observer_.on_released(id); }
  void on_offload_asked(PoolId pool, std::span<const BlockKey> keys) override {
    if (pool == measured_.pool) observer_.on_offload_asked(keys);
  }
  [[nodiscard]] bool wants_offload_asked() const override { return observer_.samples(); }
  [[nodiscard]] bool wants_spans() const override { return observer_.captures(CaptureKind::trace); }
  void on_span(const TraceSpan& span) override { observer_.on_span(span); }
  [[nodiscard]] TimePoint next_deadline() const override {
    const TimePoint next = publisher_.next_deadline();
    return next == never ? never : std::min(next, observer_.next_deadline());
  }

 private:
  void describe(const Cache& cache, AdminSnapshot& snapshot);

  const Clock& clock_;
  Publisher publisher_;
  Observer observer_;
  AdminSnapshot::Measured measured_;
  Complete complete_;
  ResumeShared resume_shared_;
};

}  // namespace terrace::admin
