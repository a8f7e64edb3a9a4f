#include "transfer/device/transfer.hpp"

#include "base/check.hpp"

#include <limits>

namespace terrace {
namespace {

/// The sums have 64 bits, so that the number after the last slot is not taken for slot 0.
bool is_next(const SlotRun& run, SlotId source, SlotId destination) {
  return source.value() == std::uint64_t{run.source.value()} + run.count &&
         destination.value() == std::uint64_t{run.destination.value()} + run.count;
}

}  // namespace

void coalesce(std::span<const SlotPair> pairs, std::vector<SlotRun>& runs) {
  runs.clear();
  for (auto pair = pairs.begin(); pair != pairs.end();) {
    SlotRun run{pair->source, pair->destination, 1};
    while (++pair != pairs.end() && is_next(run, pair->source, pair->destination)) ++run.count;
    runs.push_back(run);
  }
}

void append(std::vector<SlotRun>& runs, const SlotRun& next) {
  if (!runs.empty() && is_next(runs.back(), next.source, next.destination)) runs.back().count += next.count;
  else runs.push_back(next);
}

std::uint32_t block_count(std::span<const SlotRun> runs) {
  std::uint64_t total = 0;
  for (const SlotRun& run : runs) total += run.count;
  TERRACE_CHECK(total <= std::numeric_limits<std::uint32_t>::max());
  return static_cast<std::uint32_t>(total);
}

}  // namespace terrace
