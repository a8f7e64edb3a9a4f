#include "lab/storage/storage_ground.hpp"

#include "lab/rounds.hpp"
#include "tools/interrupted.hpp"
#include "tools/replay/options/preflight.hpp"
#include "tools/usage_error.hpp"

#include <fmt/format.h>

#include <cstring>
#include <limits>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <system_error>

namespace terrace::tools {
namespace {

constexpr Bytes block_unit = KiB * 4;
constexpr Bytes block_bytes_max = GiB;
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

void check(const StorageBenchOptions& options) {
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
    if (bytes < block_unit || bytes > block_bytes_max || count(bytes) % count(block_unit) != 0) {
      throw std::invalid_argument{fmt::format("--sizes {}: must be a multiple of {}, {} at most", to_string(bytes),
                                              to_string(block_unit), to_string(block_bytes_max))};
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

}  // namespace

StorageGround::StorageGround(const StorageBenchOptions& options, Bytes size, const Interrupt& asked, EventFdWaker& woken)
    : block_bytes{size},
      blocks{static_cast<std::uint32_t>(options.size / size)},
      depth_max{std::ranges::max(options.depths)},
      io{options.io},
      interrupt{asked},
      waker{woken},
      buffers{noise(count(size) * depth_max)} {
  scratch.push_back(std::make_unique<ScratchDirectory>(options.directory));
  for (const auto& stripe : options.stripes) scratch.push_back(std::make_unique<ScratchDirectory>(stripe, "--stripe"));
  for (const auto& directory : scratch) directories.push_back(directory->path());
}

AlignedBuffer noise(std::uint64_t bytes) {
  AlignedBuffer buffer{bytes};
  std::uint64_t word = 1;
  for (std::uint64_t at = 0; at < buffer.size(); at += sizeof word) {
    word = word * 6364136223846793005ULL + 1442695040888963407ULL;
    std::memcpy(buffer.data() + at, &word, sizeof word);
  }
  return buffer;
}

void fill(const StorageGround& ground, StorageSubject& store) {
  std::vector<std::uint32_t> all(ground.blocks);
  std::iota(all.begin(), all.end(), 0U);
  store.move(StorageWay::write, std::min(16U, ground.depth_max), all);
  if (ground.interrupt.requested()) throw Interrupted{};  // the store is not full
}

void at_each_size(const StorageBenchOptions& options, const std::function<void(StorageGround&)>& measure) {
  check(options);
  EventFdWaker waker;
  const Interrupt interrupt{&waker};
  for (const Bytes block_bytes : options.block_bytes) {
    StorageGround ground{options, block_bytes, interrupt, waker};
    measure(ground);
  }
}

Row measure_in_turns(const StorageBenchOptions& options, const StorageGround& ground, unsigned depth, StorageWay way,
                     std::span<const NamedSubject> subjects) {
  // Each block comes once before any comes again, so that no subject benefits from blocks that another one has just brought into
  // a lower cache.
  const std::vector<std::uint32_t> blocks = scattered_order(ground.blocks);
  std::size_t next = 0;
  std::vector<std::uint32_t> order(std::max<std::uint64_t>(options.moved / ground.block_bytes, std::uint64_t{8} * depth));
  const auto operations = static_cast<double>(order.size());
  const double gigabytes = static_cast<double>(count(ground.block_bytes)) * operations * 1e-9;
  Figures figures;
  for (unsigned round = 0; round < options.rounds; ++round) {
    std::vector<double> speeds(subjects.size());
    for (std::size_t turn = 0; turn < subjects.size(); ++turn) {
      const std::size_t n = (turn + round) % subjects.size();
      StorageSubject& subject = subjects[n].subject;
      subject.prepare(way);
      for (std::uint32_t& block : order) block = blocks[next++ % blocks.size()];
      const double cpu = thread_cpu_seconds();
      speeds[n] = gigabytes / seconds_of([&] { subject.move(way, depth, order); });
      if (ground.interrupt.requested()) throw Interrupted{};
      figures.add(fmt::format("{}_cpu_us", subjects[n].name), (thread_cpu_seconds() - cpu) * 1e6 / operations);
    }
    for (std::size_t n = 0; n < subjects.size(); ++n) {
      figures.add(fmt::format("{}_gb_per_s", subjects[n].name), speeds[n]);
      figures.add(fmt::format("{}_ratio", subjects[n].name), speeds[n] / speeds.back());
    }
  }
  Row row{{"block_bytes", count(ground.block_bytes)}, {"depth", depth}, {"way", way == StorageWay::read ? "read" : "write"}};
  figures.add_medians(row);
  return row;
}

}  // namespace terrace::tools
