#include "transfer/device/transfer.hpp"

#include "base/check.hpp"

#include <limits>

namespace terrace {

std::uint32_t block_count(std::span<const SlotRun> runs) {
  std::uint64_t total = 0;
  for (const SlotRun& run : runs) total += run.count;
  TERRACE_CHECK(total <= std::numeric_limits<std::uint32_t>::max());
  return static_cast<std::uint32_t>(total);
}

}  // namespace terrace
