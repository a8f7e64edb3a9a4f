#include "tools/replay/preflight.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

namespace terrace::tools {
namespace {

namespace fs = std::filesystem;

/// Beside the blocks: the tree, queues, staging, what the allocator keeps.
constexpr Bytes overhead = MiB * 64;
constexpr std::uint64_t overhead_per_block = 512;

std::optional<std::uint64_t> number_in(const fs::path& file) {
  std::ifstream in{file};
  std::uint64_t number = 0;
  if (in >> number) return number;
  return std::nullopt;  // also "max"
}

/// The number behind `name` in a file of lines "name number".
std::uint64_t field_in(const fs::path& file, const std::string& name) {
  std::ifstream in{file};
  for (std::string word; in >> word;) {
    std::uint64_t number = 0;
    if (word == name && in >> number) return number;
  }
  return 0;
}

/// Of the group and of those it is in; page cache that the kernel would give back counts as there.
std::optional<std::uint64_t> left_in_groups(const fs::path& root, fs::path group, const char* limit_file,
                                            const char* usage_file) {
  std::optional<std::uint64_t> left;
  for (;; group = group.parent_path()) {
    const fs::path here = root / group.relative_path();
    const auto limit = number_in(here / limit_file);
    const auto used = number_in(here / usage_file);
    if (limit && used) {
      const std::uint64_t cache = field_in(here / "memory.stat", "inactive_file");
      const std::uint64_t taken = *used - std::min(*used, cache);
      const std::uint64_t rest = *limit - std::min(*limit, taken);
      left = std::min(left.value_or(rest), rest);
    }
    if (!group.has_relative_path()) return left;
  }
}

std::optional<std::uint64_t> left_in_own_groups() {
  std::optional<std::uint64_t> left;
  const auto take = [&left](std::optional<std::uint64_t> found) {
    if (found) left = std::min(left.value_or(*found), *found);
  };
  std::ifstream in{"/proc/self/cgroup"};
  // Lines of the form "4:memory:/path" (version 1) and "0::/path" (version 2).
  for (std::string line; std::getline(in, line);) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const fs::path group = line.substr(second + 1);
    if (controllers.empty()) take(left_in_groups("/sys/fs/cgroup", group, "memory.max", "memory.current"));
    if (controllers == "memory") {
      take(left_in_groups("/sys/fs/cgroup/memory", group, "memory.limit_in_bytes", "memory.usage_in_bytes"));
    }
  }
  return left;
}

void check_report(const fs::path& report) {
  if (report.empty()) return;
  std::error_code ignored;
  if (fs::is_directory(report, ignored)) throw UsageError{fmt::format("--report: {} is a directory", report.string())};
  const fs::path target = fs::exists(report, ignored) ? report : report.has_parent_path() ? report.parent_path() : fs::path{"."};
  if (::access(target.c_str(), W_OK) != 0) {
    throw UsageError{fmt::format("--report: cannot write {}: {}", report.string(), std::strerror(errno))};
  }
}

}  // namespace

std::optional<Bytes> available_memory() {
  const std::uint64_t kilobytes = field_in("/proc/meminfo", "MemAvailable:");
  const auto groups = left_in_own_groups();
  if (kilobytes == 0 && !groups) return std::nullopt;
  const std::uint64_t machine = kilobytes == 0 ? std::numeric_limits<std::uint64_t>::max() : kilobytes * count(KiB);
  return Bytes{std::min(machine, groups.value_or(machine))};
}

Bytes needed_memory(const ReplayOptions& options) {
  // A GPU's blocks are in its own memory.
  const std::uint64_t blocks = std::uint64_t{options.cuda ? 0 : options.device_blocks} + options.host_blocks;
  const double per_block = static_cast<double>(count(options.block_bytes) + overhead_per_block);
  double bytes = static_cast<double>(count(overhead)) + static_cast<double>(blocks) * per_block;
  if (const auto* memory = std::get_if<MemoryStorage>(&options.storage)) bytes += static_cast<double>(count(memory->capacity));
  // In floating point, since the product may pass 64 bits.
  constexpr double most = 9e18;
  return Bytes{static_cast<std::uint64_t>(std::min(bytes, most))};
}

void check_feasible(const ReplayOptions& options, std::optional<Bytes> available) {
  check_report(options.report);
  const Bytes needed = needed_memory(options);
  if (!available || needed <= *available) return;
  const std::uint64_t for_blocks = count(*available) - std::min(count(*available), count(overhead));
  throw UsageError{fmt::format(
      "the tiers need {} of memory, and {} is available: at most {} blocks of {} in all tiers of memory fit", to_string(needed),
      to_string(*available), for_blocks / (count(options.block_bytes) + overhead_per_block), to_string(options.block_bytes))};
}

}  // namespace terrace::tools
