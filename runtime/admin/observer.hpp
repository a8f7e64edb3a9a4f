#pragma once

#include "runtime/admin/mailbox.hpp"
#include "runtime/admin/snapshot.hpp"
#include "runtime/engine/cache_parts.hpp"
#include "terrace/clock.hpp"
#include "terrace/request.hpp"

#include <boost/unordered/unordered_flat_map.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

namespace terrace::admin {

/// Records on the thread of the cache the data that the endpoint processes on its own thread: always a few samples of each
/// request, and, during a capture, everything that the capture needs. The cost is a few memory writes for each request; keys are
/// not copied.
///
/// Threads: the thread of the cache.
class Observer : public CacheWatch {
 public:
  void on_acquired(const AcquireRequest& request) override;
  void on_committed(RequestId id, std::span<const BlockKey> keys) override;
  void on_released(RequestId id) override;
  /// The depths of these blocks are not known, so one block in four is sampled, by its key.
  void on_offload_asked(PoolId pool, std::span<const BlockKey> keys) override;
  [[nodiscard]] bool wants_offload_asked() const override { return samples(); }
  [[nodiscard]] bool wants_spans() const override { return captures(CaptureKind::trace); }
  void on_span(const TraceSpan& span) override;
  /// The end of the next capture.
  [[nodiscard]] TimePoint next_deadline() const override;

  /// Captures for `length` from now on. Length 0 ends a capture that is under way.
  void capture(CaptureKind kind, Duration length);
  [[nodiscard]] bool captures(CaptureKind kind) const { return capturing_[static_cast<std::size_t>(kind)]; }

  Observer(Mailbox& mailbox, const Clock& clock) : mailbox_{mailbox}, clock_{clock} {}
  void on_polled(TimePoint /*now*/) override {}

  /// Chooses the blocks whose samples are recorded.
  void sample(const AdminSnapshot::Measured& measured) { measured_ = measured; }
  [[nodiscard]] const AdminSnapshot::Measured& measured() const { return measured_; }
  void hand_over();

 protected:
  [[nodiscard]] const Clock& clock() const { return clock_; }
  /// Ends captures whose time is over. Returns true if there were any. Costs two comparisons if none is under way.
  bool end_captures(TimePoint now) {
    return (captures(CaptureKind::trace) || captures(CaptureKind::record)) && end_those_over(now);
  }

 private:
  /// A request that has not ended.
  struct Live {
    std::uint32_t prompt = 0;  ///< blocks
    std::uint32_t known = 0;   ///< blocks of the prompt, and those that were shared after it
    bool recorded = false;
    RecordedRequest record{};
  };
  /// A portion is handed over before it has more than these.
  static constexpr std::size_t samples_max = 4096;
  static constexpr std::size_t spans_max = 8192;
  static constexpr std::size_t requests_max = 512;

  [[nodiscard]] Capture& of(CaptureKind kind) { return portion_.captures[static_cast<std::size_t>(kind)]; }
  [[nodiscard]] const Capture& of(CaptureKind kind) const { return portion_.captures[static_cast<std::size_t>(kind)]; }
  [[nodiscard]] bool samples() const { return measured_.units_per_block > 0; }
  bool end_those_over(TimePoint now);
  /// Ends the samples of a request.
  void end_samples();
  void end_record(Live& live);

  Mailbox& mailbox_;
  const Clock& clock_;
  AdminSnapshot::Measured measured_{.units_per_block = 0};
  bool capturing_[capture_kinds]{};
  Observed portion_;
  boost::unordered_flat_map<RequestId, Live, std::hash<RequestId>> live_;
};

}  // namespace terrace::admin
