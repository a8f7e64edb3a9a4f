#include "tools/replay/options/preflight.hpp"

#include "tools/report_file.hpp"
#include "transfer/host/memory_limits.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace terrace::tools {
namespace {

/// Memory in addition to the blocks: tree, queues, staging, and what the allocator keeps.
constexpr Bytes overhead = MiB * 64;
constexpr std::uint64_t overhead_per_block = 512;

KeptFiles kept_files(const ReplayOptions& options) {
  KeptFiles kept{.trace = options.trace, .store_directories = {}};
  if (const auto* file = std::get_if<FileStorage>(&options.system.storage)) {
    const auto keep = [&](const std::filesystem::path& given) {
      kept.store_directories.push_back(file->name.empty() ? given : given / file->name);
    };
    std::ranges::for_each(file->directories, keep);
  }
  return kept;
}

}  // namespace

std::optional<Bytes> available_memory() { return memory_left(read_memory_limits()); }

Bytes needed_memory(const ReplayOptions& options) {
  // A GPU's blocks are in the GPU's own memory. Each emulated rank has its share of every block, or a full copy if ranks are
  // replicated.
  const double copies =
      options.emulated_ranks() / (options.system.rank_payload == RankPayload::replicated ? 1.0 : options.ranks());
  double bytes = static_cast<double>(count(overhead));
  for (const PoolOptions& pool : pools_of(options)) {
    const double blocks = copies * pool.device_blocks.value() + pool.host_blocks.value();
    bytes += blocks * static_cast<double>(count(pool.block_bytes) + overhead_per_block);
  }
  if (const auto* memory = std::get_if<MemoryStorage>(&options.system.storage))
    bytes += static_cast<double>(count(memory->capacity));
  // Computed in floating point, because the product could exceed 64 bits.
  constexpr double most = 9e18;
  return Bytes{static_cast<std::uint64_t>(std::min(bytes, most))};
}

void check_feasible(const ReplayOptions& options, std::optional<Bytes> available) {
  check_report(options.report, kept_files(options));
  const Bytes needed = needed_memory(options);
  if (!available || needed <= *available) return;
  if (!options.groups.empty()) {
    throw UsageError{fmt::format("the tiers need {} of memory, and {} is available", to_string(needed), to_string(*available))};
  }
  const std::uint64_t for_blocks = count(*available) - std::min(count(*available), count(overhead));
  throw UsageError{fmt::format(
      "the tiers need {} of memory, and {} is available: at most {} blocks of {} in all tiers of memory fit", to_string(needed),
      to_string(*available), for_blocks / (count(options.block_bytes) + overhead_per_block), to_string(options.block_bytes))};
}

}  // namespace terrace::tools
