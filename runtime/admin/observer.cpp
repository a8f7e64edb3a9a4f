#include "runtime/admin/observer.hpp"

#include "runtime/cache/measure/reuse_curve.hpp"

#include <algorithm>
#include <utility>

namespace terrace::admin {

void Observer::on_acquired(const AcquireRequest& request) {
  const auto blocks = static_cast<std::uint32_t>(request.keys.size());
  Live live{.prompt = blocks, .known = blocks};
  if (captures(CaptureKind::record)) {
    live.recorded = true;
    live.record.at = clock_.now();
    live.record.prompt.reserve(blocks);
    for (const BlockKey& key : request.keys) live.record.prompt.push_back(key.prefix64());
  }
  live_.insert_or_assign(request.id, std::move(live));
  if (!samples()) return;
  sample_path(request.keys, 0, [this](const BlockKey& key, std::uint32_t weight) {
    portion_.samples.push_back({key.prefix64(), weight, true});
  });
  end_samples();
}

void Observer::on_offload_asked(PoolId pool, std::span<const BlockKey> keys) {
  constexpr std::uint32_t one_in = 4;
  if (!samples() || pool != measured_.pool) return;
  for (const BlockKey& key : keys) {
    // prefix64() identifies the block. Other bytes of the digest are used for the choice, so that the two are independent.
    if (std::to_integer<std::uint32_t>(key.bytes.back()) % one_in == 0)
      portion_.samples.push_back({key.prefix64(), one_in, true});
  }
  end_samples();
}

void Observer::end_samples() {
  const auto end = static_cast<std::uint32_t>(portion_.samples.size());
  if (end > (portion_.ends.empty() ? 0 : portion_.ends.back())) portion_.ends.push_back(end);
  if (end >= samples_max) hand_over();
}

void Observer::on_committed(RequestId id, std::span<const BlockKey> keys) {
  const auto found = live_.find(id);
  if (found == live_.end() || keys.size() <= found->second.known) return;
  const std::uint32_t known = std::exchange(found->second.known, static_cast<std::uint32_t>(keys.size()));
  if (!samples()) return;
  sample_path(keys, known, [this](const BlockKey& key, std::uint32_t weight) {
    portion_.samples.push_back({key.prefix64(), weight, false});
  });
  end_samples();
}

void Observer::on_released(RequestId id) {
  const auto found = live_.find(id);
  if (found == live_.end()) return;
  end_record(found->second);
  live_.erase(found);
  if (portion_.requests.size() >= requests_max) hand_over();
}

void Observer::on_span(const TraceSpan& span) {
  portion_.spans.push_back(span);
  if (portion_.spans.size() >= spans_max) hand_over();
}

void Observer::capture(CaptureKind kind, Duration length) {
  const TimePoint now = clock_.now();
  Capture& capture = of(kind);
  if (captures(kind)) capture.end = now;
  end_captures(now);
  hand_over();  // the portion belongs to earlier captures
  if (length <= Duration{}) return;
  capture = {capture.number + 1, now, now + length};
  capturing_[static_cast<std::size_t>(kind)] = true;
}

bool Observer::end_those_over(TimePoint now) {
  bool any = false;
  for (const CaptureKind kind : {CaptureKind::trace, CaptureKind::record}) {
    if (!captures(kind) || now < of(kind).end) continue;
    capturing_[static_cast<std::size_t>(kind)] = false;
    any = true;
    if (kind == CaptureKind::trace) continue;
    for (auto& [id, live] : live_) end_record(live);
  }
  return any;
}

TimePoint Observer::next_deadline() const {
  TimePoint next = never;
  for (const CaptureKind kind : {CaptureKind::trace, CaptureKind::record}) {
    if (captures(kind)) next = std::min(next, of(kind).end);
  }
  return next;
}

void Observer::end_record(Live& live) {
  if (!std::exchange(live.recorded, false)) return;
  live.record.output_blocks = live.known - live.prompt;
  portion_.requests.push_back(std::move(live.record));
}

void Observer::hand_over() {
  Observed next;
  next.captures = portion_.captures;
  portion_.made = clock_.now();
  mailbox_.give(std::exchange(portion_, std::move(next)));
}

}  // namespace terrace::admin
