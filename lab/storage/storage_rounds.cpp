#include "lab/storage/storage_rounds.hpp"

#include "lab/rounds.hpp"
#include "tools/interrupted.hpp"
#include "tools/replay/options/preflight.hpp"
#include "tools/usage_error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <optional>
#include <stdexcept>
#include <system_error>

namespace terrace::tools {
namespace {

constexpr Bytes block_unit = KiB * 4;
constexpr Bytes largest_block = GiB;
constexpr unsigned depth_limit = 4096;
constexpr double giga = 1e-9;

/// Checks the free space for each directory's share. If two directories are on the same disk, the bench finds out only when the
/// disk is full.
void check_room(const std::filesystem::path& directory, const char* option, const StorageBenchOptions& options) {
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(directory, error);
  if (error) throw UsageError{fmt::format("{} {}: {}", option, directory.string(), error.message())};
  // The store's files and the plain file; then the catalog and directories.
  const Bytes all = options.size * 2 + Bytes{count(options.size) / 64};
  const Bytes needed = Bytes{count(all) / (options.stripes.size() + 1)} + MiB * 16;
  if (space.available >= count(needed)) return;
  throw std::invalid_argument{fmt::format("{} {}: {} are free; its part of a store and a file of {} takes {}", option,
                                          directory.string(), to_string(Bytes{space.available}), to_string(options.size),
                                          to_string(needed))};
}

}  // namespace

void check_storage_options(const StorageBenchOptions& options) {
  if (options.rounds == 0) throw std::invalid_argument{"--rounds 0: at least 1 is needed"};
  if (options.block_bytes.empty() || options.depths.empty()) throw std::invalid_argument{"--sizes, --depths: one at least"};
  for (const unsigned depth : options.depths) {
    if (depth == 0 || depth > depth_limit) {
      throw std::invalid_argument{fmt::format("--depths {}: must be from 1 to {}", depth, depth_limit)};
    }
  }
  const unsigned depth_max = std::ranges::max(options.depths);
  const std::optional<Bytes> memory = available_memory();
  for (const Bytes bytes : options.block_bytes) {
    if (bytes < block_unit || bytes > largest_block || count(bytes) % count(block_unit) != 0) {
      throw std::invalid_argument{fmt::format("--sizes {}: must be a multiple of {}, {} at most", to_string(bytes),
                                              to_string(block_unit), to_string(largest_block))};
    }
    const std::uint64_t blocks = options.size / bytes;
    if (blocks < 2 * std::uint64_t{depth_max} || blocks > std::numeric_limits<std::uint32_t>::max() / 2) {
      throw std::invalid_argument{fmt::format("--size {}: {} blocks of {}; at least twice the depth of {} is needed",
                                              to_string(options.size), blocks, to_string(bytes), depth_max)};
    }
    if (memory && bytes * depth_max > *memory) {
      throw std::invalid_argument{fmt::format("{} blocks of {} under way take {} of memory; {} is available", depth_max,
                                              to_string(bytes), to_string(bytes * depth_max), to_string(*memory))};
    }
  }
  check_room(options.directory, "--directory", options);
  for (const std::filesystem::path& stripe : options.stripes) check_room(stripe, "--stripe", options);
}

std::vector<StorageSpeed> measure_in_turns(const StorageBenchOptions& options, const StorageGround& ground, unsigned depth,
                                           StorageWay way, std::span<StorageSubject* const> subjects) {
  ScatteredTurns turns{ground.blocks, std::max<std::uint64_t>(options.moved / ground.block_bytes, std::uint64_t{8} * depth)};
  const auto operations = static_cast<double>(turns.operations());
  const double bytes = static_cast<double>(count(ground.block_bytes)) * operations;
  struct Rounds {
    std::vector<double> speeds, ratios, cpu_us;
  };
  std::vector<Rounds> all(subjects.size());
  for (unsigned round = 0; round < options.rounds; ++round) {
    for (std::size_t turn = 0; turn < subjects.size(); ++turn) {
      const std::size_t n = (turn + round) % subjects.size();
      subjects[n]->prepare(way);
      const std::vector<std::uint32_t>& order = turns.next();
      const double cpu = thread_cpu_seconds();
      all[n].speeds.push_back(bytes * giga / seconds_of([&] { subjects[n]->move(way, depth, order); }));
      if (ground.interrupt.requested()) throw Interrupted{};
      all[n].cpu_us.push_back((thread_cpu_seconds() - cpu) * 1e6 / operations);
    }
    for (Rounds& each : all) each.ratios.push_back(each.speeds.back() / all.back().speeds.back());
  }
  std::vector<StorageSpeed> medians;
  medians.reserve(all.size());
  for (const Rounds& each : all) medians.push_back({median(each.speeds), median(each.ratios), median(each.cpu_us)});
  return medians;
}

}  // namespace terrace::tools
