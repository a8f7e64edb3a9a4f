#include "transfer/device/transfer.hpp"

#include "base/check.hpp"

#include <limits>

namespace terrace {

void append(std::vector<SlotRun>& runs, const SlotRun& next) {
  if (!runs.empty()) {
    SlotRun& last = runs.back();
    // The sums have 64 bits, so that the number after the last slot is not taken for slot 0.
    const std::uint64_t next_source = std::uint64_t{last.source.value()} + last.count;
    const std::uint64_t next_destination = std::uint64_t{last.destination.value()} + last.count;
    if (next.source.value() == next_source && next.destination.value() == next_destination) {
      last.count += next.count;
      return;
    }
  }
  runs.push_back(next);
}

void coalesce(std::span<const SlotPair> pairs, std::vector<SlotRun>& runs) {
  runs.clear();
  for (const SlotPair& pair : pairs) append(runs, {pair.source, pair.destination, 1});
}

std::uint32_t block_count(std::span<const SlotRun> runs) {
  std::uint64_t total = 0;
  for (const SlotRun& run : runs) total += run.count;
  TERRACE_CHECK(total <= std::numeric_limits<std::uint32_t>::max());
  return static_cast<std::uint32_t>(total);
}

}  // namespace terrace
