#include "runtime/cache/measure/trace_span.hpp"

#include <fmt/format.h>

#include <chrono>
#include <iterator>

namespace terrace {
namespace {

using Kind = TraceSpan::Kind;

/// The viewer shows overlapping spans of one category below each other.
std::string_view category_of(Kind kind) {
  if (kind <= Kind::poll) return "call";
  if (kind <= Kind::hold) return "request";
  if (kind <= Kind::store_job) return "job";
  return to_string(kind);
}

double microseconds(Duration time) { return std::chrono::duration<double, std::micro>(time).count(); }

}  // namespace

std::string_view TraceJson::begin() {
  return R"({"displayTimeUnit":"ms","traceEvents":[
{"ph":"M","pid":1,"name":"process_name","args":{"name":"terrace"}},
{"ph":"M","pid":1,"tid":1,"name":"thread_name","args":{"name":"calls of the engine"}})";
}

std::string_view TraceJson::end(bool truncated) {
  return truncated ? "\n],\"otherData\":{\"truncated\":true}}\n" : "\n],\"otherData\":{\"truncated\":false}}\n";
}

void TraceJson::append(std::string& text, const TraceSpan& span) {
  ++spans_;
  const auto into = std::back_inserter(text);
  const double begin = microseconds(span.begin - origin_);
  const double end = microseconds(span.end - origin_);
  const std::string_view name = to_string(span.kind);
  const std::string_view category = category_of(span.kind);
  if (span.kind <= Kind::poll) {
    fmt::format_to(into, ",\n{{\"ph\":\"X\",\"pid\":1,\"tid\":1,\"cat\":\"{}\",\"name\":\"{}\",\"ts\":{:.3f},\"dur\":{:.3f}}}",
                   category, name, begin, end - begin);
    return;
  }
  // The wait and the hold of a request have the same number, so that they share a track.
  const std::uint64_t track = span.id == 0 ? spans_ : span.id;
  const std::string head = fmt::format("\"pid\":1,\"cat\":\"{}\",\"name\":\"{}\",\"id\":{}", category, name, track);
  fmt::format_to(into, ",\n{{\"ph\":\"b\",{},\"ts\":{:.3f},\"args\":{{\"id\":{},\"blocks\":{},\"failed\":{}}}}}", head, begin,
                 span.id, span.blocks, span.failed);
  fmt::format_to(into, ",\n{{\"ph\":\"e\",{},\"ts\":{:.3f}}}", head, end);
}

}  // namespace terrace
