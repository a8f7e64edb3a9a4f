#include "tools/bench/transfer/copy.hpp"

#include "tools/bench/rounds.hpp"
#include "tools/output.hpp"
#include "transfer/host/host_arena.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <vector>

namespace terrace::tools {

void bench_copy(const CopyBenchOptions& options) {
  const std::uint64_t blocks = count(options.block_bytes) == 0 ? 0 : options.area_bytes / options.block_bytes;
  if (blocks == 0 || blocks > std::numeric_limits<std::uint32_t>::max() || options.rounds == 0) {
    throw std::invalid_argument{fmt::format("an area of {} holds {} blocks of {}: at least 1 is needed, and at least 1 round",
                                            to_string(options.area_bytes), blocks, to_string(options.block_bytes))};
  }
  const auto slots = static_cast<std::uint32_t>(blocks);
  const HostArena from{slots, options.block_bytes};
  const HostArena to{slots, options.block_bytes};

  const std::vector<std::uint32_t> order = scattered_order(slots);
  std::vector<double> speeds;
  for (unsigned round = 0; round <= options.rounds; ++round) {
    const double seconds = seconds_of([&] {
      for (std::uint32_t i = 0; i < slots; ++i) {
        const auto target = to.block(SlotId{i});
        std::memcpy(target.data(), from.block(SlotId{order[i]}).data(), target.size());
      }
    });
    const double bytes = static_cast<double>(blocks) * static_cast<double>(count(options.block_bytes));
    if (round > 0) speeds.push_back(bytes / seconds / 1e9);  // the first round only warms up
  }
  std::ranges::sort(speeds);
  print("one core copies {} blocks: {:.2f} GB/s (median of {}; {:.2f} to {:.2f})\n", to_string(options.block_bytes),
        speeds[speeds.size() / 2], speeds.size(), speeds.front(), speeds.back());
}

}  // namespace terrace::tools
