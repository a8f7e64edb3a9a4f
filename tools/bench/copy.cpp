#include "tools/bench/copy.hpp"

#include "transfer/host_arena.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <numeric>
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

  // A step that shares no factor with the count visits every block once, and no two neighbours in a row.
  std::uint64_t step = blocks / 2 + 1;
  while (std::gcd(blocks, step) != 1) ++step;

  std::vector<double> speeds;
  for (unsigned round = 0; round <= options.rounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    std::uint64_t at = 0;
    for (std::uint32_t i = 0; i < slots; ++i) {
      at = (at + step) % blocks;
      const auto target = to.block(SlotId{i});
      std::memcpy(target.data(), from.block(SlotId{static_cast<std::uint32_t>(at)}).data(), target.size());
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const double bytes = static_cast<double>(blocks) * static_cast<double>(count(options.block_bytes));
    if (round > 0) speeds.push_back(bytes / seconds / 1e9);  // the first round warms up
  }
  std::ranges::sort(speeds);
  fmt::print("one core copies {} blocks: {:.2f} GB/s (median of {}; {:.2f} to {:.2f})\n", to_string(options.block_bytes),
             speeds[speeds.size() / 2], speeds.size(), speeds.front(), speeds.back());
}

}  // namespace terrace::tools
