#include "runtime/cache/measure/throughput.hpp"

#include "base/check.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

namespace terrace {
namespace {

constexpr double half_life_seconds = 10;
/// A caller may request at most this many times the bytes that were moved recently.
constexpr double trust = 8;
/// After this many recently moved bytes, the throughput counts as known, and there is no limit.
constexpr double known_bytes = 32.0 * static_cast<double>(count(MiB));

double seconds_between(TimePoint from, TimePoint to) { return std::max(0.0, std::chrono::duration<double>(to - from).count()); }

}  // namespace

double Throughput::faded(TimePoint now) const { return std::exp2(-seconds_between(mark_, now) / half_life_seconds); }

void Throughput::began(std::uint64_t operations, TimePoint now) {
  if (operations == 0) return;
  if (under_way_ == 0) {
    const double left = faded(now);
    bytes_ *= left;
    seconds_ *= left * left;  // an idle link counts as faster, see seconds_per_byte()
    mark_ = now;
  }
  under_way_ += operations;
}

void Throughput::ended(std::uint64_t operations, Bytes moved, TimePoint now, Duration took) {
  if (operations == 0) return;
  TERRACE_CHECK(under_way_ >= operations);
  under_way_ -= operations;
  const double left = faded(now);
  const double since = seconds_between(mark_, now);
  bytes_ = bytes_ * left + static_cast<double>(count(moved));
  seconds_ = seconds_ * left + (told_ ? std::chrono::duration<double>(took).count() : since);
  busy_seconds_ += since;
  mark_ = now;
}

double Throughput::seconds_per_byte(TimePoint now) const {
  const double since = told_ ? 0 : seconds_between(mark_, now);
  if (under_way_ == 0) return bytes_ > 0 ? seconds_ / bytes_ * faded(now) : 0;
  return bytes_ > 0 ? (seconds_ + since) / bytes_ : since / static_cast<double>(count(trusted_unseen));
}

Bytes Throughput::trusted(TimePoint now) const {
  const double recent = bytes_ * faded(now);
  if (recent >= known_bytes) return Bytes{std::numeric_limits<std::uint64_t>::max()};
  return trusted_unseen + Bytes{static_cast<std::uint64_t>(trust * recent)};
}

}  // namespace terrace
