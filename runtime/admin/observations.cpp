#include "runtime/admin/observations.hpp"

#include <boost/unordered/unordered_flat_map.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <span>
#include <utility>

namespace terrace::admin {
namespace {

/// The first portion that was made after the end of a capture completes it. If the engine does not poll, no portion comes, and
/// the capture is complete after this time.
constexpr Duration patience = std::chrono::seconds{2};

double seconds(Duration time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

void Observations::add(Observed portion) {
  std::uint32_t begin = 0;
  for (const std::uint32_t end : portion.ends) {
    curve_.use(std::span{portion.samples}.subspan(begin, end - begin), portion.made);
    begin = end;
  }
  for (std::size_t kind = 0; kind < capture_kinds; ++kind) {
    Kept& kept = kept_[kind];
    if (portion.captures[kind].number != kept.capture.number) start(static_cast<CaptureKind>(kind), portion.captures[kind]);
    kept.capture = portion.captures[kind];
    kept.truncated |= portion.gap && kept.capture.number > 0 && kept.seen < kept.capture.end;
    kept.seen = portion.made;
  }
  for (const TraceSpan& span : portion.spans) {
    const std::size_t before = trace_.size();
    if (!keeps(of(CaptureKind::trace), 0)) break;
    trace_json_->append(trace_, span);
    of(CaptureKind::trace).bytes += trace_.size() - before;
  }
  for (RecordedRequest& request : portion.requests) {
    if (!keeps(of(CaptureKind::record), sizeof request + request.prompt.size() * sizeof(std::uint64_t))) break;
    requests_.push_back(std::move(request));
  }
}

void Observations::start(CaptureKind kind, const Capture& capture) {
  Kept& kept = of(kind);
  kept = {};
  if (const std::optional<Bytes> left = left_ ? left_() : std::nullopt)
    kept.bytes_max = std::clamp<std::size_t>(count(*left) / 4, capture_bytes_min, capture_bytes_max);
  if (kind == CaptureKind::record) {
    requests_ = {};
  } else {
    trace_ = TraceJson::begin();
    trace_json_.emplace(capture.begin);
  }
}

bool Observations::keeps(Kept& kept, std::size_t bytes) {
  if (kept.text) return false;  // the capture is complete
  if (kept.bytes + bytes > kept.bytes_max) kept.truncated = true;
  if (kept.truncated) return false;
  kept.bytes += bytes;
  ++kept.entries;
  return true;
}

Observations::Status Observations::status(CaptureKind kind, TimePoint now) const {
  const Kept& kept = of(kind);
  if (kept.capture.number == 0) return {};
  const bool done = kept.seen >= kept.capture.end || now >= kept.capture.end + patience;
  return {.state = done ? State::done : State::running,
          .seconds_left = done ? 0 : std::max(0.0, seconds(kept.capture.end - now)),
          .seconds = seconds(kept.capture.end - kept.capture.begin),
          .entries = kept.entries,
          .truncated = kept.truncated};
}

template <class Make>
Observations::Text Observations::text_of(CaptureKind kind, Make make) {
  Text& text = of(kind).text;
  std::weak_ptr<const std::string>& last = last_texts_[static_cast<std::size_t>(kind)];
  if (!text && last.expired()) {
    text = std::make_shared<const std::string>(make());
    last = text;
  }
  return text;
}

Observations::Text Observations::trace() {
  return text_of(CaptureKind::trace, [this] {
    trace_ += TraceJson::end(of(CaptureKind::trace).truncated);
    return std::exchange(trace_, {});
  });
}

Observations::Text Observations::recording(std::uint32_t block_tokens) {
  return text_of(CaptureKind::record, [&] {
    std::string text = made_recording(block_tokens);
    requests_ = {};
    return text;
  });
}

std::string Observations::made_recording(std::uint32_t block_tokens) const {
  std::vector<const RecordedRequest*> order;
  order.reserve(requests_.size());
  for (const RecordedRequest& request : requests_) order.push_back(&request);
  std::ranges::stable_sort(order, {}, [](const RecordedRequest* request) { return request->at; });
  boost::unordered_flat_map<std::uint64_t, std::uint64_t> numbers;
  std::string text;
  const auto into = std::back_inserter(text);
  for (const RecordedRequest* const request : order) {
    const auto since = std::chrono::duration_cast<std::chrono::milliseconds>(request->at - of(CaptureKind::record).capture.begin);
    fmt::format_to(into, "{{\"timestamp\": {}, \"input_length\": {}, \"output_length\": {}, \"hash_ids\": [", since.count(),
                   request->prompt.size() * block_tokens, std::uint64_t{request->output_blocks} * block_tokens);
    const char* separator = "";
    for (const std::uint64_t block : request->prompt) {
      fmt::format_to(into, "{}{}", separator, numbers.try_emplace(block, numbers.size()).first->second);
      separator = ", ";
    }
    fmt::format_to(into, "], \"block_tokens\": {}}}\n", block_tokens);
  }
  return text;
}

}  // namespace terrace::admin
